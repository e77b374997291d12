# ends: time 0
# Each makes two, ten times over: a thousand where nothing stops it.
echo tried
bomb() { [ "$1" -gt 0 ] && { bomb $(($1 - 1)) | bomb $(($1 - 1)) & }; sleep 60; }
bomb 9 2>/dev/null &
exec sleep 60
