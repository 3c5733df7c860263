#!/usr/bin/env bash
# Runs ranks on hosts that Linux's network namespaces play: addresses of several kinds, and two runs beside each other. Needs root,
# and the example of gpu-tuned-ranks:
#
#   cargo build -p gpu-tuned-ranks --examples && scripts/try-networks.sh
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:-target/debug/examples/hello}
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
  echo 'networks: SKIPPED, because only root can make network namespaces, with iproute2'
  exit
fi
hosts=(gt$$-a gt$$-b)
output=$(mktemp -d)
clean() {
  for host in "${hosts[@]}"; do
    ip netns delete "$host" 2>/dev/null || true
    rm -rf "/etc/netns/$host"
  done
  rm -rf "$output"
}
trap clean EXIT

# Two hosts with a cable, IPv4 and IPv6 addresses; both know the name `root` of the first.
ip netns add "${hosts[0]}"
ip netns add "${hosts[1]}"
ip -n "${hosts[0]}" link add eth0 type veth peer name eth0 netns "${hosts[1]}"
for number in 0 1; do
  host=${hosts[number]}
  ip -n "$host" link set lo up
  ip -n "$host" link set eth0 up
  ip -n "$host" address add "10.77.0.$((number + 1))/24" dev eth0
  ip -n "$host" address add "fd77::$((number + 1))/64" dev eth0 nodad
  mkdir -p "/etc/netns/$host"
  printf 'fd77::1 root\n10.77.0.1 root\nfd77::1 six\n127.0.0.1 localhost\n' >"/etc/netns/$host/hosts"
done

# Starts a rank of two on its host: `rank NUMBER FILE VARIABLE=VALUE…`.
rank() {
  local number=$1 file=$output/$2
  shift 2
  ip netns exec "${hosts[number]}" env RANK="$number" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_PORT=29500 \
    GPU_TUNED_SECRET=of-this-test "$@" timeout 60 "$program" >"$file" 2>&1
}

# Checks that two ranks with these variables find each other: `joins NAME VARIABLE…`.
joins() {
  local name=$1 processes=() status=0
  shift
  printf '== %s\n' "$name"
  for number in 0 1; do
    rank "$number" "rank$number" "$@" &
    processes+=($!)
  done
  for process in "${processes[@]}"; do wait "$process" || status=$?; done
  sed 's/^/   /' "$output"/rank?
  if [ "$status" != 0 ] || [ "$(cat "$output"/rank? | grep -c 'of 2, .*: sum 3$')" != 2 ]; then
    printf '%s: exit status %s\n' "$name" "$status"
    exit 1
  fi
}

joins 'IPv4' MASTER_ADDR=10.77.0.1
joins 'IPv6' MASTER_ADDR=fd77::1
joins 'IPv6 in brackets' 'MASTER_ADDR=[fd77::1]'
joins 'a name with both' MASTER_ADDR=root

# Two runs with one port and secret: the first has the port, the rank of the second is refused until its time is over.
printf '== two runs beside each other\n'
rank 0 first MASTER_ADDR=10.77.0.1 GPU_TUNED_RUN_ID=first &
first=$!
rank 1 stranger MASTER_ADDR=10.77.0.1 GPU_TUNED_RUN_ID=second &
stranger=$!
sleep 4
rank 1 second MASTER_ADDR=10.77.0.1 GPU_TUNED_RUN_ID=first
wait "$first"
grep -h 'sum 3$' "$output/first" "$output/second"
kill "$stranger" 2>/dev/null || true
wait "$stranger" || true
grep 'belongs to run `second`, but rank 0 on .* to run `first`' "$output/stranger"

# No IPv4 address.
for host in "${hosts[@]}"; do ip -n "$host" -4 address flush dev eth0; done
joins 'IPv6 only' MASTER_ADDR=six
for number in 0 1; do ip -n "${hosts[number]}" address add "10.77.0.$((number + 1))/24" dev eth0; done

# IPv6 packets are lost: the name's IPv4 address is reached, too.
ip -n "${hosts[1]}" -6 neighbour replace fd77::1 lladdr 02:00:00:00:00:99 dev eth0
joins 'a name with both, IPv6 lost' MASTER_ADDR=root
echo 'all networks passed'
