# ends: exited 0
# Programs of root's keep their mark in /usr, but it gives nothing here.
echo tried
for program in /usr/bin/su /usr/bin/mount /usr/bin/passwd /usr/bin/newgrp; do
  [ -u "$program" ] || continue
  "$program" </dev/null >/work/said 2>&1
done
cp /usr/bin/id /work/id && chmod 4755 /work/id
/work/id -u | grep -q '^65534$' || echo "ESCAPED: another user"
grep -q '^NoNewPrivs:.1$' /proc/self/status || echo "ESCAPED: new privileges"
grep -q '^CapBnd:.0000000000000000$' /proc/self/status || echo "ESCAPED: capabilities"
exit 0
