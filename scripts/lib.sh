# SPDX-License-Identifier: MIT
# What scripts/demo and scripts/test share: sourced by them, never run. It finds what the machine lacks and installs it
# (as root, with apt-get and pip), or says exactly what is missing and which command brings it.
# Python packages go into build-venv/ and never into the system's Python; what is there comes first.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/build-venv
pictures=auto
PATH=$venv/bin:$PATH

say() {
    printf '\n== %s\n' "$*"
}

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# The packages, one a line, of those "test command: packages" lines on standard input whose command fails.
missing_packages() {
    local check packages
    while IFS=: read -r check packages; do
        [ -z "$check" ] || eval "$check" >/dev/null 2>&1 </dev/null || printf '%s\n' $packages
    done
}

has_header() {
    printf '#include <%s>\n' "$1" | gcc -E -x c -
}

can_make_venv() {
    python3 -c 'import venv, ensurepip'
}

# Installs the packages given, or ends with the line that would.
install_packages() {
    local line="apt-get update && apt-get install -y --no-install-recommends $*"
    command -v apt-get >/dev/null || fail "missing: $* (Debian's names); install them and try again"
    [ "$(id -u)" = 0 ] || fail "missing: $*; as root: $line"
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update </dev/null &&
        apt-get -qq install -y --no-install-recommends "$@" </dev/null >/dev/null ||
        fail "could not install $*; when the network is back: $line"
}

# Puts Python packages into the private environment, or ends with the line that would.
install_python() {
    say "installing $* into build-venv"
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" || fail "could not make $venv: is python3-venv installed?"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" </dev/null ||
        fail "could not install $*; when the network is back: $venv/bin/pip install $*"
    hash -r
}

# A compiler, Meson, Ninja and Python. Meson of an old distribution gives way to a private one.
need_build_tools() {
    local missing
    missing=$(missing_packages <<'LINES'
command -v gcc:gcc
has_header stdlib.h:libc6-dev
has_header zlib.h:zlib1g-dev
command -v ld && command -v readelf:binutils
command -v python3:python3
can_make_venv:python3-venv
command -v ninja:ninja-build
command -v meson:meson
LINES
    )
    [ -z "$missing" ] || install_packages $missing
    at_least "$(meson --version)" 0.61 || install_python meson
}

need_cmocka() {
    local missing
    missing=$(missing_packages <<'LINES'
command -v pkg-config:pkg-config
has_header cmocka.h && pkg-config --exists cmocka:libcmocka-dev
LINES
    )
    [ -z "$missing" ] || install_packages $missing
}

# Draws benchmarks and traces.
need_matplotlib() {
    python3 -c 'import matplotlib' 2>/dev/null || install_python matplotlib
    pictures=enabled
}

# Shows the page that `vpmm plot` writes; its test is skipped without one.
want_browser() {
    local browser
    for browser in chromium chromium-browser google-chrome chrome; do
        ! command -v $browser >/dev/null || return 0
    done
    (install_packages chromium) || say "going on without a browser"
}

# What only the style tests use; they skip what they cannot check, so nothing here is worth a failure.
want_style_tools() {
    local package
    for package in $(missing_packages <<'LINES'
command -v ctags:universal-ctags
command -v g++:g++
command -v clang-format-14 || clang-format --version | grep -q 'version 14':clang-format-14
command -v clang-tidy-14 || clang-tidy --version | grep -q 'version 14':clang-tidy-14
cppcheck --version | grep -q 'Cppcheck 2\.10':cppcheck
LINES
    ); do
        (install_packages "$package") || say "going on without $package"
    done
}

at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]
}

# cuda.h: the toolkit's, or else from pip.
need_cuda_headers() {
    "$root/scripts/find-cuda-headers" >/dev/null 2>&1 && return
    install_python nvidia-cuda-runtime nvidia-cuda-crt
    "$root/scripts/find-cuda-headers" >/dev/null || exit 1
}

# The real CUDA libraries whose look-ups are tested: the toolkit's, or else from pip.
need_cuda_libraries() {
    local pair missing=
    for pair in libcudart_static.a:nvidia-cuda-runtime libcudart.so:nvidia-cuda-runtime libcublas.so:nvidia-cublas \
        libnccl.so:nvidia-nccl-cu13; do
        python3 -B "$root/test/preload/find_library.py" "${pair%:*}" >/dev/null 2>&1 ||
            missing="$missing ${pair#*:}"
    done
    [ -z "$missing" ] || install_python $missing
}

# configure FOLDER [MESON OPTION...]: makes the build folder, or keeps the one that is there.
configure() {
    local folder=$root/$1 again=
    shift
    [ ! -f "$folder/build.ninja" ] || again=--reconfigure
    mkdir -p "$folder"
    meson setup $again "$folder" "$root" -Dheaders_of_cuda="$("$root/scripts/find-cuda-headers")" -Dtests=enabled \
        -Dpictures="$pictures" "$@" \
        </dev/null >"$folder/setup.log" 2>&1 || {
        cat "$folder/setup.log" >&2
        fail "meson setup of $folder failed"
    }
}

# build FOLDER [TARGET...]: says nothing but what the compiler says, and nothing of a link that found no make to share out
# its work.
build() {
    local folder=$root/$1
    shift
    ninja -C "$folder" "$@" </dev/null | sed -e '/^\[[0-9]*\/[0-9]*\]/d; /^ninja: [En]/d' \
        -e '/^lto-wrapper: \(warning: using serial\|note: see the\)/d'
}

# needed_targets FOLDER [OPTION OF MESON TEST...]: what ninja has to build for the tests that
# --suite and --no-suite pick.
needed_targets() {
    python3 - "$root/$1" "${@:2}" <<'PYTHON'
import json, os, sys
folder, options = sys.argv[1], sys.argv[2:]


def picked(option):
    return {name for word, name in zip(options, options[1:]) if word == option}


def described(what):
    with open(os.path.join(folder, "meson-info", f"intro-{what}.json"), encoding="utf-8") as file:
        return json.load(file)


needed = set()
for test in described("tests"):
    suites = {suite.split(":")[-1] for suite in test["suite"]}
    is_wanted = not picked("--suite") or suites & picked("--suite")
    if is_wanted and not suites & picked("--no-suite"):
        needed.update(test["depends"])
for target in described("targets"):
    for path in target["filename"] if target["id"] in needed else ():
        print(os.path.relpath(path, folder))
PYTHON
}

# failed_tests FOLDER NAME: what the last run of tests in the folder did not pass, with its last words.
failed_tests() {
    python3 - "$root/$1/meson-logs/testlog.json" "$2" <<'PYTHON'
import json, os, sys
log, name = sys.argv[1:]
for line in open(log) if os.path.exists(log) else []:
    test = json.loads(line)
    if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
        said = (test.get("stdout", "") + test.get("stderr", "")).splitlines()[-30:]
        print(f"FAILED {name}: {test['name']}: {test['result']} after {test['duration']:.1f} s", *said, sep="\n")
PYTHON
}

# page_that_fits FREE_BYTES PAGES: the largest page up to 1 GiB of which so many, and at least 24, fit into 80% of the
# memory.
page_that_fits() {
    local free_mib=$(($1 >> 20)) pages=$(($2 > 24 ? $2 : 24)) page_mib=1024
    while [ $page_mib -gt 2 ] && [ $((page_mib * pages)) -gt $((free_mib * 8 / 10)) ]; do
        page_mib=$((page_mib / 2))
    done
    echo "${page_mib}M"
}
