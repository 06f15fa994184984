#!/usr/bin/env bash
# Trains on several hosts by ssh alone, and starts all processes again when one has died.
#
#   HOSTS="node1 node2" ./ssh_train.sh /shared/run1 --mesh fsdp=16 --steps 20000 --every 200
#
# Every host has jaxpar under the same path (JAXPAR, or what its PATH finds), and the folder is on a file system that
# all share. ssh must ask for no password, and the first host must be known to all by its name here. All options after
# the folder go to jaxpar train. SIGTERM makes the run save and end with 143; the same command goes on with it.
set -uo pipefail
read -r -a hosts <<< "${HOSTS:?the names of the hosts}"
checkpoints=$1
shift
port=${PORT:-12355}
pids=$checkpoints.pids # the process of each host, for signals: ssh passes none on
mkdir -p "$pids"
options=
if (($#)); then
    printf -v options ' %q' "$@" # quoted for the shells of the hosts
fi

newest() { # the newest checkpoint that was completed; none prints nothing
    compgen -G "$checkpoints/step-*/manifest.json" | sort | tail -n 1
}

terminate() { # one process is enough: JAX tells the others at which step all end
    # shellcheck disable=SC2029  # the path is the same here and there
    ssh "${hosts[0]}" "kill -TERM \$(cat $(printf %q "$pids/0"))"
}

start() { # starts process $1 on its host; where ssh ends, -tt makes the process end, too
    local place="JAX_COORDINATOR_ADDRESS=${hosts[0]}:$port JAX_NUM_PROCESSES=${#hosts[@]} JAX_PROCESS_ID=$1"
    local run="${JAXPAR:-jaxpar} train$options --watchdog 600 ${before:+--resume}" command
    printf -v command "cd %q && echo \$\$ > %q && exec env %s %s --checkpoint %q" \
        "$PWD" "$pids/$1" "$place" "$run" "$checkpoints"
    ssh -tt "${hosts[$1]}" "$command" < /dev/null &
}

attempt() { # runs all processes; returns the exit code of the first that does not end well
    local code=0 left=${#hosts[@]} rank started=()
    for rank in "${!hosts[@]}"; do
        start "$rank"
        started+=($!)
    done
    while ((code == 0 && left > 0)); do
        wait -n
        code=$?
        ((left -= 1))
    done
    if ((code != 143)); then # with 143 the others are saving, too
        kill "${started[@]}" 2> /dev/null
    fi
    wait
    return "$code"
}

trap terminate TERM
while true; do
    before=$(newest)
    attempt
    code=$?
    if ((code == 0 || code == 2 || code == 143)); then
        exit "$code"
    fi
    if [[ $(newest) == "$before" ]]; then
        echo "The run ended with $code and has saved nothing new; it is not started again." >&2
        exit "$code"
    fi
    echo "The run ended with $code; it goes on after $(newest)." >&2
    ((port += 1)) # the old port may not be free yet
done
