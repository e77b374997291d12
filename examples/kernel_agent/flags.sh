# shellcheck shell=bash disable=SC2034
# Sourced by run.sh and run_gpu.sh with the user's flags: `agent` has those of the agent alone, which the supervised stage does not
# know, `others` the rest.
agent=() # the agent's own flags, which the supervised stage does not know
others=()
while (($#)); do
  case $1 in
    --single-turn) agent+=("$1") ;;
    --max-turns | --turn-reward | --turn-discount | --kernel-gpu) agent+=("$1" "$2") && shift ;;
    *) others+=("$1") ;;
  esac
  shift
done
