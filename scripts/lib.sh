# Shared by the scripts beside it: source it from the repository's root.

if [ -t 2 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# need_build_tools: a Rust toolchain and a C compiler, or a clear end.
need_build_tools() {
  have cargo || fail "cargo is missing; install Rust with rustup (https://rustup.rs), then run this again"
  have cc || have gcc || have clang || fail "a C compiler is missing (SQLite and ring are built from C); on Debian: apt-get install gcc"
}

# apt_install PACKAGE…: installs Debian packages where that can be done without asking, or says how.
apt_install() {
  have apt-get || fail "please install: $*"
  [ "$(id -u)" = 0 ] || fail "please install: sudo apt-get install $*"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
