#!/usr/bin/env bash
# Installs one image's locks and Gatehouse: install.sh ENVIRONMENT CONTEXT. With wheels in CONTEXT nothing is downloaded;
# without, torch.lock is installed from TORCH_INDEX, an index of CPU builds.
set -euo pipefail
environment=$1 context=$2

options=(--python "$environment/bin/python" install --quiet --no-deps)
torch_from=(--index-url "${TORCH_INDEX:-}")
if compgen -G "$context/wheels/*.whl" >/dev/null; then
    options+=(--no-index --find-links "$context/wheels")
    torch_from=()
fi
for lock in "$context"/locks/*.lock; do
    if [ "$(basename "$lock")" != torch.lock ]; then
        python3 -m pip "${options[@]}" --require-hashes -r "$lock"
    elif ! python3 -m pip "${options[@]}" "${torch_from[@]}" -r "$lock"; then
        echo "error: no CPU build of torch from ${TORCH_INDEX:-} or the wheels. Name an index that has it in TORCH_INDEX," >&2
        echo "give the wheel in WHEELS, or build training-gpu, whose build of torch PyPI has." >&2
        exit 1
    fi
done
python3 -m pip "${options[@]}" "$context"/gatehouse/*.whl
packages=$("$environment/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [ -e "$context/locks/torch.lock" ] && grep -q '^Requires-Dist: nvidia-' "$packages"/torch-*.dist-info/METADATA; then
    echo "error: expected the CPU build of torch, found the CUDA build, whose libraries are in training-gpu alone." >&2
    exit 1
fi
# The wheel carries the example project for `gatehouse run`; a pod gets its configuration as parameters and references.
rm -r "$packages/gatehouse/pipelines/projects" "$packages/gatehouse/feature_repo"
