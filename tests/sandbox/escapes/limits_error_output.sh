# ends: output 0
echo tried
yes >&2
