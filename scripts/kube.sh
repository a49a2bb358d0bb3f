#!/bin/bash
# Builds the real Kubernetes programs that the cluster tests start, once, outside the clone:
#   kube.sh build   builds what is missing
#   kube.sh where   prints the directory
#   kube.sh list    names what it builds
# The versions are those of tests/kube/go.mod. Two that build at once wait for each other.
set -euo pipefail
cd "$(dirname "$0")/../tests/kube"

# What the tests start now; go.mod knows more of them (kubelet, kube-scheduler).
PROGRAMS=(etcd kube-apiserver kube-controller-manager kubectl)

version() { awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' go.mod; }
KUBERNETES=$(version k8s.io/kubernetes)
ETCD=$(version go.etcd.io/etcd/server/v3)
case $(uname -m) in x86_64) ARCH=amd64 ;; aarch64) ARCH=arm64 ;; *) ARCH=$(uname -m) ;; esac
DIR=${XDG_CACHE_HOME:-$HOME/.cache}/nodeagent-kube/$KUBERNETES-etcd-$ETCD-$ARCH

say() { echo "make kube: $*"; }
fail() { say "$*" >&2; exit 1; }

missing() { local name; for name in "${PROGRAMS[@]}"; do [ -x "$DIR/$name" ] || echo "$name"; done; }

package() {
    case $1 in
        etcd) echo go.etcd.io/etcd/server/v3 ;;
        *) echo "k8s.io/kubernetes/cmd/$1" ;;
    esac
}

# Go 1.27's encoder writes an OpenAPI document that the API server then cannot serve.
check_go() {
    command -v go >/dev/null || fail "needs Go 1.26; install it, or name ready programs with KUBE_BIN=DIR"
    case $(GOTOOLCHAIN=local go env GOVERSION) in
        go1.26*) ;;
        *) fail "needs Go 1.26, found $(go env GOVERSION); or name ready programs with KUBE_BIN=DIR" ;;
    esac
}

# A line of a single word is the name of a package that was compiled; every other line is a message.
progress() {
    awk -v name="$1" '
        NF == 1 { if (++done % 200 == 0) { print "make kube:   " name ": " done " packages"; fflush() } next }
        { print; fflush() }'
}

build() {
    local name=$1 began=$SECONDS to="$DIR/.$1.$$" stamp=k8s.io/component-base/version client=k8s.io/client-go/pkg/version
    local minor=${KUBERNETES#v1.}
    local flags="-s -w"
    for package in $stamp $client; do
        flags+=" -X $package.gitVersion=$KUBERNETES -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
    done
    say "building $name ..."
    CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false nice -n 19 \
        go build -v -trimpath -ldflags "$flags" -o "$to" "$(package "$name")" 2>&1 | progress "$name"
    mv "$to" "$DIR/$name"
    say "built $name in $((SECONDS - began)) s"
}

build_missing() {
    [ -n "$(missing)" ] || return 0
    mkdir -p "$DIR"
    exec 9>"$DIR/.lock"
    flock 9
    check_go
    trap 'rm -f "$DIR"/.*.$$' EXIT
    local name
    say "Kubernetes $KUBERNETES and etcd $ETCD into $DIR (about ten minutes on two cores, once)"
    for name in $(missing); do build "$name"; done
    say "ready after $SECONDS s"
}

case ${1-} in
    build) build_missing ;;
    where) echo "$DIR" ;;
    list) echo "${PROGRAMS[@]}" ;;
    *) fail "say build, where or list" ;;
esac
