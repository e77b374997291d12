// std::condition_variable::wait by the version that GCC 11's libstdc++ has too. GCC 12 made a new one of the same meaning,
// the only newer symbol that a program of Debian 12's compiler asks for: with the older one it also starts on distributions
// with GCC 11's library (manylinux_2_34). The linker sends every call here (--wrap in cmake/wheel.cmake).
#include <condition_variable>
#include <mutex>

extern "C" {
void slime_wait_of_gcc_11(std::condition_variable* condition, std::unique_lock<std::mutex>& lock);
__asm__(".symver slime_wait_of_gcc_11, _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                      std::unique_lock<std::mutex>& lock) {
  slime_wait_of_gcc_11(condition, lock);
}
}
