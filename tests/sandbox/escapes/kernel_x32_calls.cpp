// ends: signal 31
// The same calls under numbers from 2^30.
#include <unistd.h>

#include <cstdio>

int main() {
  std::puts("tried");
  std::fflush(stdout);
  syscall(0x40000000 + 39);
  std::puts("ESCAPED: x32");
  return 0;
}
