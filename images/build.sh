#!/usr/bin/env bash
# Builds the images of Gatehouse from its wheel and the locks: build.sh [IMAGE...], all of them by default.
#   WHEELS=DIR       a folder with all that the locks name, so that nothing is downloaded (`build.sh --wheels DIR` fills it)
#   BASE=IMAGE       the base, for a release by digest
#   REGISTRY=PREFIX  push to PREFIX/IMAGE and write the digests into images/digests.lock
#   CONTEXTS=DIR     only lay the build contexts there; needs no engine
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

# The locks of an image besides its own.
declare -A alone=([control]="" [data]="sketches" [training]="torch")

if [ "${1:-}" = --wheels ]; then
    mkdir -p "$2"
    for lock in control data training sketches torch; do
        hashes=--require-hashes
        if [ "$lock" = torch ]; then hashes=; fi
        $python -m pip download --quiet --no-deps $hashes --dest "$2" -r "locks/$lock.lock"
    done
    # What builds the few distributions that have no wheel.
    $python -m pip download --quiet --no-deps --dest "$2" $(grep -oE '^(setuptools|wheel)==[^ ]+' locks/dev.lock)
    exit 0
fi

images=("$@")
if [ ${#images[@]} = 0 ]; then images=(control data training); fi

engine=${ENGINE:-$(command -v docker || command -v podman || true)}
if [ -z "${CONTEXTS:-}" ] && { [ -z "$engine" ] || ! "$engine" info >/dev/null 2>&1; }; then
    echo "error: images need a running container engine, and ${engine:-neither docker nor podman} does not answer." >&2
    echo "Start one, or name it with ENGINE=...; everything else works without." >&2
    exit 1
fi

contexts=${CONTEXTS:-$(mktemp -d)}
if [ -z "${CONTEXTS:-}" ]; then trap 'rm -rf "$contexts"' EXIT; fi
version=$($python -c 'from importlib.metadata import version; print(version("gatehouse"))')
commit=$(git describe --always --abbrev=40 --exclude='*' --dirty=+dirty 2>/dev/null || true)
for image in "${images[@]}"; do
    context=$contexts/$image
    mkdir -p "$context"/{locks,wheels,gatehouse}
    for lock in "$image" ${alone[$image]}; do cp "locks/$lock.lock" "$context/locks/"; done
    if [ -n "${WHEELS:-}" ]; then cp "$WHEELS"/* "$context/wheels/"; fi
    touch "$context/wheels/.keep"
    $python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$context/gatehouse" .
    $python images/sbom.py "$image" >"$context/sbom.json"
    cp images/smoke.py images/install.sh "$context"
    if [ -n "${CONTEXTS:-}" ]; then continue; fi
    "$engine" build ${PIP_EXTRA_INDEX_URL:+--build-arg PIP_EXTRA_INDEX_URL} ${BASE:+--build-arg BASE} \
        --build-arg "IMAGE=$image" --build-arg "VERSION=$version" --build-arg "GATEHOUSE_COMMIT=$commit" \
        --tag "gatehouse/$image:$version" --file images/Containerfile "$context"
    if [ -n "${REGISTRY:-}" ]; then
        "$engine" tag "gatehouse/$image:$version" "$REGISTRY/$image:$version"
        "$engine" push "$REGISTRY/$image:$version"
        digest=$("$engine" image inspect --format '{{index .RepoDigests 0}}' "$REGISTRY/$image:$version")
        sed -i "s|^$image:.*|$image: $digest|" images/digests.lock
    fi
done
