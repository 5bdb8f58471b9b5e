#!/usr/bin/env bash
# Boots the kernel many times in a row and counts how the boots end.
# usage: tests/boots.sh [N] [arguments for `cargo qemu run` ...]
#   N   how many boots (200)
# The arguments replace the default: --smp 8 --append "schedstats=enable psi=1
# run=pipe:loops=500,messaging:groups=1:loops=5".
# Prints a line every ten boots and the count at the end.
# Exit: 0 all boots ended well; 1 one did not (its console is kept); 2 usage, or no kernel.
# TIMEOUT=S sets how long one boot may take (120): more than that counts as hung.
set -u
cd "$(dirname "$0")/.." || exit 2

boots=${1:-200}
case $boots in
'' | *[!0-9]* | 0) echo "boots.sh: '$boots' is not a number of boots above 0" >&2; exit 2 ;;
esac
[ $# -gt 0 ] && shift
if [ $# -eq 0 ]; then
    set -- --smp 8 --append "schedstats=enable psi=1 run=pipe:loops=500,messaging:groups=1:loops=5"
fi

# Built once; the launcher is then called directly, so that nothing is compiled between boots.
kernel=$(cargo qemu path) || exit 2
launcher=${QEMU_LAUNCHER:-$(dirname "$(dirname "$kernel")")/debug/qemu}
keep=$(dirname "$(dirname "$kernel")")/boots
rm -rf "$keep" && mkdir -p "$keep" || exit 2

ok=0 failed=0 hung=0
for ((i = 1; i <= boots; i++)); do
    console=$keep/boot-$i.txt
    "$launcher" run --kernel "$kernel" --timeout "${TIMEOUT:-120}" "$@" >"$console" 2>&1 </dev/null
    code=$?
    # The verdict is checked twice: by the exit code and by the last line.
    if [ $code -eq 0 ] && tail -n 1 "$console" | grep -q '^end status=ok '; then
        ok=$((ok + 1))
        rm "$console"
    elif [ $code -eq 124 ]; then
        hung=$((hung + 1))
        echo "boot $i: no end within ${TIMEOUT:-120} s, see $console"
    elif [ $code -eq 130 ]; then
        echo "interrupted after $((i - 1)) boots"
        break
    else
        failed=$((failed + 1))
        echo "boot $i: exit code $code, see $console"
    fi
    [ $((i % 10)) -eq 0 ] && echo "$i boots: $ok ok, $failed failed, $hung hung"
done
echo "boots=$((ok + failed + hung)) ok=$ok failed=$failed hung=$hung"
[ $ok -eq "$boots" ]
