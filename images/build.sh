#!/usr/bin/env bash
# Builds every image of this folder from the wheel and the locks.
set -euo pipefail
cd "$(dirname "$0")/.."

engine=${ENGINE:-$(command -v docker || command -v podman || true)}
if [ -z "$engine" ] || ! "$engine" info >/dev/null 2>&1; then
    echo "error: images need a running container engine, and ${engine:-neither docker nor podman} does not answer." >&2
    echo "Start one, or name it with ENGINE=...; everything else works without." >&2
    exit 1
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$context" .
cp locks/image.lock locks/sketches.lock locks/torch.lock images/smoke.py "$context"
version=$(.venv/bin/python -c 'from importlib.metadata import version; print(version("gatehouse"))')
for file in images/*.Containerfile; do
    name=$(basename "$file" .Containerfile)
    "$engine" build ${PIP_EXTRA_INDEX_URL:+--build-arg PIP_EXTRA_INDEX_URL} \
        --build-arg "GATEHOUSE_COMMIT=$(git describe --always --abbrev=40 --exclude='*' --dirty=+dirty 2>/dev/null || true)" \
        --tag "gatehouse/$name:$version" --file "$file" "$context"
done
echo "Push the images, then write their digests into images/digests.lock."
