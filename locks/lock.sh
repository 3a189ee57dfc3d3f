#!/usr/bin/env bash
# Resolves pyproject.toml into the lock files: dev.lock holds everything, and those of a run and of each image are parts.
# torch-gpu.lock holds the CUDA builds of torch and XGBoost, which PyPI offers for Linux, and what they alone require;
# xgboost.lock holds the CPU build of XGBoost.
set -euo pipefail
cd "$(dirname "$0")/.."

# uv keeps the versions that it finds in an output file.
options=(--quiet --strip-extras --generate-hashes --python-version 3.11 --custom-compile-command "make lock")

# Prints a lock without the entries of CUDA; nvidia-ml-py, which reads what a driver counts, is none of them.
without_cuda() { awk '/^[a-z]/ {is = /^(triton|nvidia-[^=]*|cuda-[^=]*)==/ && !/^nvidia-ml-py==/} !is' "$1"; }

# torch is in locks of its own, and gatehouse is what is here.
resolve() { # resolve FILE OPTION...
    .venv/bin/uv pip compile "${options[@]}" --no-emit-package torch --no-emit-package pip --no-emit-package gatehouse \
        "${@:2}" --output-file "$1" pyproject.toml
    without_cuda "$1" >"$1.cpu" && mv "$1.cpu" "$1"
}

# One entry of a lock: the pin, its hashes, and who asked for it.
entry() { awk -v name="$1==" 'index($0, name) == 1 {on = 1; print; next} /^[^ ]/ {on = 0} on' "$2"; }

resolve locks/dev.lock --extra all --extra dev ${UPGRADE:+--upgrade}
# The parts get the versions of the whole.
cp locks/dev.lock locks/run.lock
resolve locks/run.lock --extra example
for image in control data ray training; do
    cp locks/dev.lock "locks/$image.lock"
    resolve "locks/$image.lock" --extra "$image-image"
    # In a pod only KFP's executor is needed, and it imports none of KFP's own dependencies.
    entry kfp locks/dev.lock >>"locks/$image.lock"
done

# Both builds of XGBoost are one package, so an image gets one of them.
entry xgboost-cpu locks/training.lock >locks/xgboost.lock
awk '/^[^ ]/ {on = !/^xgboost-cpu==/} on' locks/training.lock >locks/training.lock.rest
mv locks/training.lock.rest locks/training.lock
xgboost=$(sed -nE 's/^xgboost-cpu==([^ ]+).*/\1/p' locks/xgboost.lock)
.venv/bin/python -m pip install --quiet --dry-run --ignore-installed --report - -r locks/torch.lock "xgboost==$xgboost" |
    .venv/bin/python locks/torch_gpu.py >locks/torch-gpu.lock

# What builds the site of the documentation, in an environment of its own.
.venv/bin/uv pip compile "${options[@]}" ${UPGRADE:+--upgrade} --output-file locks/docs.lock locks/docs.in

for lock in locks/{dev,run,control,data,ray,training,xgboost,torch-gpu,docs}.lock; do
    if grep -qE '://|^--' "$lock"; then
        echo "error: $lock names an index, which differs from machine to machine." >&2
        exit 1
    fi
done
