# ends: exited 0
echo tried
unshare -Ur true 2>/dev/null && echo "ESCAPED: unshare"
unshare -m true 2>/dev/null && echo "ESCAPED: unshare -m"
nsenter -t 1 -m true 2>/dev/null && echo "ESCAPED: nsenter"
bwrap --ro-bind / / true 2>/dev/null && echo "ESCAPED: bwrap"
exit 0
