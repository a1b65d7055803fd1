#!/bin/sh
# Prints the Python that the virtual environment is to be made of: `python3`, unless another one here does the same
# work in much less time. One that was compiled without profile-guided optimisation (pyenv's, as it comes) takes 1.3 to 1.4
# times as long for all that Holdfast does; on such a machine Debian's own is often there too.
#
#     tools/choose_python.sh        PYTHON=/path/to/python make run    uses that one instead
timed() {
  "$1" -Es - 2>/dev/null <<'END'
import sys, time
import ensurepip, venv

def work():
    counts = {}
    for number in range(20_000):
        key = "%d" % (number % 500)
        counts[key] = counts.get(key, 0) + number
    return sorted(counts.items(), key=lambda one: one[1])

if sys.version_info < (3, 11):
    sys.exit(1)
least = 1e9
for _ in range(9):
    begun = time.process_time()
    work()
    least = min(least, time.process_time() - begun)
print("%d %d.%d" % (least * 1e6, *sys.version_info[:2]))
END
}

chosen= least= version=
for name in python3 /usr/bin/python3 /usr/local/bin/python3 python3.11 python3.12 python3.13; do
  path=$(command -v "$name") || continue
  set -- $(timed "$path") || true
  [ $# = 2 ] || continue
  # A newer version may lack what is pinned: `python3` decides which one it is, if it is new enough.
  if [ -z "$chosen" ] || { [ "$2" = "$version" ] && [ $(($1 * 100)) -lt $((least * 85)) ]; }; then
    chosen=$path least=$1 version=$2
  fi
done
echo "${chosen:-python3}"
