#!/usr/bin/env bash
# Builds the images of Gatehouse from its wheel and the locks: build.sh [IMAGE...], all of them by default.
#   WHEELS=DIR       a folder with all that the locks name: nothing is downloaded (`build.sh --wheels DIR [IMAGE...]`
#                    fills it)
#   TORCH_INDEX=URL  where the image `training` gets the CPU build of torch
#   BASE=IMAGE       the base, for a release by digest
#   REGISTRY=PREFIX  push to PREFIX/IMAGE and write the registry's digests into images/digests.lock
#   ENGINE=PROGRAM   what builds; the first of docker, podman and buildah that works by default
#   CONTEXTS=DIR     only lay the build contexts there; needs no engine
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
# PyPI has the CUDA build of torch for Linux; PyTorch's own index has the CPU build.
export TORCH_INDEX=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

declare -A locks
table=$($python -c 'from gatehouse.runtime.images import LOCKS; [print(name, *locks) for name, locks in LOCKS.items()]')
all=()
while read -r image pinned; do
    all+=("$image")
    locks[$image]=$pinned
done <<<"$table"

fetch() { # fetch DIR IMAGE OPTION...: brings what an image's locks name
    local folder=$1 image=$2 lock options
    shift 2
    mkdir -p "$folder"
    for lock in ${locks[$image]}; do
        options=(--require-hashes)
        if [ "$lock" = torch ]; then options=(--index-url "$TORCH_INDEX"); fi
        if ! $python -m pip download --quiet --no-deps --dest "$folder" "${options[@]}" "$@" -r "locks/$lock.lock"; then
            echo "error: $image: locks/$lock.lock cannot be had. TORCH_INDEX names the index for torch.lock." >&2
            exit 1
        fi
    done
    # What builds the few distributions that have no wheel.
    $python -m pip download --quiet --no-deps --dest "$folder" "$@" \
        $(grep -oE '^(setuptools|wheel)==[^ ]+' locks/dev.lock)
}

wheels=""
if [ "${1:-}" = --wheels ]; then
    wheels=$2
    shift 2
fi
if [ $# = 0 ]; then set -- "${all[@]}"; fi
if [ -n "$wheels" ]; then
    for image in "$@"; do fetch "$wheels" "$image"; done
    exit 0
fi

publish() { # publish LOCAL REMOTE: pushes an image, and prints the digest of the manifest that the registry has
    # The engine's own manifest is another one: Podman and Buildah compress the layers when they push.
    local digest
    "$engine" tag "$1" "$2"
    if [[ $("$engine" push --help 2>&1) == *--digestfile* ]]; then
        "$engine" push --digestfile "$contexts/digest" "$2" >&2
        digest=$(cat "$contexts/digest")
    else
        digest=$("$engine" push "$2" | tee >(cat >&2) | sed -nE 's/.*digest: (sha256:[0-9a-f]{64}) size: .*/\1/p')
    fi
    if [[ ! $digest =~ ^sha256:[0-9a-f]{64}$ ]]; then
        echo "error: $2: expected a digest from $engine push, found '$digest'" >&2
        return 1
    fi
    echo "$digest"
}

engine=""
if [ -z "${CONTEXTS:-}" ]; then
    for program in ${ENGINE:-docker podman buildah}; do
        if "$program" info >/dev/null 2>&1; then
            engine=$program
            break
        fi
    done
    if [ -z "$engine" ]; then
        echo "error: images need a container engine, and ${ENGINE:-none of docker, podman and buildah} does not work." >&2
        echo "Start or install one, or name another with ENGINE=...; everything else works without." >&2
        exit 1
    fi
fi

contexts=${CONTEXTS:-$(mktemp -d)}
if [ -z "${CONTEXTS:-}" ]; then trap 'rm -rf "$contexts"' EXIT; fi
version=$($python -c 'from importlib.metadata import version; print(version("gatehouse"))')
commit=$(git describe --always --abbrev=40 --exclude='*' --dirty=+dirty 2>/dev/null || true)
for image in "$@"; do
    context=$contexts/$image
    mkdir -p "$context"/{locks,wheels,gatehouse}
    for lock in ${locks[$image]}; do cp "locks/$lock.lock" "$context/locks/"; done
    if [ -n "${WHEELS:-}" ]; then fetch "$context/wheels" "$image" --no-index --find-links "$WHEELS"; fi
    touch "$context/wheels/.keep"
    rm -rf build/lib # setuptools would put modules into the wheel that were deleted since its last build
    $python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$context/gatehouse" .
    $python images/sbom.py "$image" >"$context/sbom.json"
    cp images/smoke.py images/install.sh "$context"
    if [ -n "${CONTEXTS:-}" ]; then continue; fi
    "$engine" build ${PIP_INDEX_URL:+--build-arg PIP_INDEX_URL} --build-arg TORCH_INDEX ${BASE:+--build-arg BASE} \
        --build-arg "IMAGE=$image" --build-arg "VERSION=$version" --build-arg "GATEHOUSE_COMMIT=$commit" \
        --tag "gatehouse/$image:$version" --file images/Containerfile "$context"
    if [ -n "${REGISTRY:-}" ]; then
        digest=$(publish "gatehouse/$image:$version" "$REGISTRY/$image:$version")
        sed -i "s|^$image:.*|$image: $REGISTRY/$image@$digest|" images/digests.lock
    fi
done
