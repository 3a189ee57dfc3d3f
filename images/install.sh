#!/usr/bin/env bash
# Installs one image's locks and Gatehouse: install.sh ENVIRONMENT CONTEXT. With wheels in CONTEXT nothing is downloaded.
set -euo pipefail
environment=$1 context=$2

options=(--python "$environment/bin/python" install --quiet --no-deps)
if compgen -G "$context/wheels/*.whl" >/dev/null; then
    options+=(--no-index --find-links "$context/wheels")
fi
for lock in "$context"/locks/*.lock; do
    hashes=()
    if grep -q -- --hash= "$lock"; then hashes=(--require-hashes); fi
    python -m pip "${options[@]}" "${hashes[@]}" -r "$lock"
done
python -m pip "${options[@]}" "$context"/gatehouse/*.whl
# The wheel carries the example project for `gatehouse run`; a pod gets its configuration as parameters and references.
packages=$("$environment/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -r "$packages/gatehouse/pipelines/projects" "$packages/gatehouse/feature_repo"
