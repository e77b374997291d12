/// What the sanitizers are told when they run the unit tests. Only code that is not ours may be
/// named here, each line with its reason.

#if defined(__SANITIZE_THREAD__)

// ThreadSanitizer sees no locks inside libraries that were built without it, so it takes what they
// guard for unguarded.
extern "C" const char* __tsan_default_suppressions() {
  return
      // GCC's OpenMP hands work to its threads by futex calls of its own.
      "called_from_lib:libgomp.so.1\n"
      // ATen: the reference counts are ours (inlined), the pools and registries behind them are
      // not.
      "called_from_lib:libtorch_cpu.so\n"
      "called_from_lib:libc10.so\n"
      "called_from_lib:libtorch_cuda.so\n";
}

#endif

#if defined(__SANITIZE_ADDRESS__)

extern "C" const char* __lsan_default_suppressions() {
  return
      // Registries that live as long as the process: operators, dispatch tables, thread pools.
      "leak:libtorch_cpu.so\n"
      "leak:libc10.so\n"
      "leak:libgomp.so.1\n";
}

#endif
