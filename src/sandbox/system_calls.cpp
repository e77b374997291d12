#include "sandbox/system_calls.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace slime::sandbox {
namespace {

constexpr uint32_t kFirstOfX32 = 0x40000000;  // the same calls under other numbers
// Younger than the headers of Debian 12.
constexpr uint32_t kFchmodat2 = 452;

constexpr uint32_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME;

// The file table, memory, processes, time, signals, sockets: grouped as the manual does.
// clang-format off
constexpr auto kAllowed = std::to_array<uint32_t>({
    // files
    SYS_read, SYS_write, SYS_open, SYS_close, SYS_stat, SYS_fstat, SYS_lstat, SYS_poll, SYS_lseek,
    SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_access, SYS_pipe, SYS_select, SYS_dup,
    SYS_dup2, SYS_dup3, SYS_sendfile, SYS_flock, SYS_fsync, SYS_fdatasync, SYS_truncate,
    SYS_ftruncate, SYS_getdents, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_rename,
    SYS_mkdir, SYS_rmdir, SYS_creat, SYS_link, SYS_unlink, SYS_symlink, SYS_readlink, SYS_chmod,
    SYS_fchmod, SYS_chown, SYS_fchown, SYS_lchown, SYS_umask, SYS_utime, SYS_utimes, SYS_mknod,
    SYS_statfs, SYS_fstatfs, SYS_readahead, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr,
    SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_openat, SYS_openat2, SYS_mkdirat,
    SYS_mknodat, SYS_fchownat, SYS_futimesat, SYS_newfstatat, SYS_unlinkat, SYS_renameat,
    SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_readlinkat, SYS_fchmodat, kFchmodat2,
    SYS_faccessat, SYS_faccessat2, SYS_pselect6, SYS_ppoll, SYS_splice, SYS_tee,
    SYS_sync_file_range, SYS_utimensat, SYS_fallocate, SYS_pipe2, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_copy_file_range, SYS_statx, SYS_close_range, SYS_fadvise64,
    // waiting
    SYS_epoll_create, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_wait, SYS_epoll_pwait,
    SYS_epoll_pwait2, SYS_eventfd, SYS_eventfd2, SYS_signalfd, SYS_signalfd4, SYS_timerfd_create,
    SYS_timerfd_settime, SYS_timerfd_gettime, SYS_futex, SYS_futex_waitv,
    // memory
    SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_mremap, SYS_msync, SYS_mincore, SYS_madvise,
    SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_get_mempolicy,
    SYS_membarrier,
    // processes
    SYS_fork, SYS_vfork, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid,
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgid, SYS_setpgid, SYS_getpgrp, SYS_setsid,
    SYS_getsid, SYS_getuid, SYS_getgid, SYS_geteuid, SYS_getegid, SYS_getresuid, SYS_getresgid,
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid,
    SYS_setfsgid, SYS_getgroups, SYS_setgroups, SYS_capget, SYS_capset, SYS_prctl, SYS_arch_prctl,
    SYS_set_tid_address, SYS_set_robust_list, SYS_get_robust_list, SYS_rseq, SYS_sched_yield,
    SYS_sched_setparam, SYS_sched_getparam, SYS_sched_setscheduler, SYS_sched_getscheduler,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_rr_get_interval,
    SYS_sched_setaffinity, SYS_sched_getaffinity, SYS_sched_getattr, SYS_sched_setattr,
    SYS_getpriority, SYS_setpriority, SYS_getrlimit, SYS_setrlimit, SYS_prlimit64, SYS_getrusage,
    SYS_times, SYS_uname, SYS_sysinfo, SYS_getcpu, SYS_getrandom, SYS_pidfd_open,
    SYS_pidfd_send_signal,
    // signals
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigtimedwait,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_rt_sigsuspend, SYS_sigaltstack, SYS_kill,
    SYS_tkill, SYS_tgkill, SYS_pause, SYS_restart_syscall,
    // time
    SYS_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_gettimeofday,
    SYS_time, SYS_alarm, SYS_getitimer, SYS_setitimer, SYS_timer_create, SYS_timer_settime,
    SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_delete,
    // sockets
    SYS_connect, SYS_accept, SYS_accept4, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg,
    SYS_sendmmsg, SYS_recvmmsg, SYS_shutdown, SYS_bind, SYS_listen, SYS_getsockname,
    SYS_getpeername, SYS_getsockopt,
});
// clang-format on

constexpr auto kAllowedBesideGpu = std::to_array<uint32_t>({SYS_mbind, SYS_set_mempolicy});

constexpr uint32_t refuse_with(int error) {
  return SECCOMP_RET_ERRNO | (static_cast<uint32_t>(error) & SECCOMP_RET_DATA);
}

class Filter {
 public:
  void load(std::size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void load_number() { load(offsetof(seccomp_data, nr)); }
  /// The lower half: what the kernel takes of an int.
  void load_argument(std::size_t index) {
    load(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
  }
  void answer(uint32_t verdict) { add(BPF_RET | BPF_K, verdict); }
  void answer_if_equal(uint32_t value, uint32_t verdict) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    answer(verdict);
  }
  void answer_unless_equal(uint32_t value, uint32_t verdict) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    answer(verdict);
  }
  void answer_if_at_least(uint32_t value, uint32_t verdict) {
    add(BPF_JMP | BPF_JGE | BPF_K, value, 0, 1);
    answer(verdict);
  }
  void answer_if_any_bit(uint32_t bits, uint32_t verdict) {
    add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    answer(verdict);
  }
  /// The instructions that `rules` adds, which end with an answer, are for this call alone.
  template <typename Rules>
  void for_call(uint32_t number, Rules rules) {
    const std::size_t jump = code_.size();
    add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 0);
    rules();
    code_[jump].jf = static_cast<uint8_t>(code_.size() - jump - 1);
  }
  std::vector<sock_filter> code() && { return std::move(code_); }

 private:
  void add(int code, uint32_t value, uint8_t if_true = 0, uint8_t if_false = 0) {
    code_.push_back(
        {.code = static_cast<uint16_t>(code), .jt = if_true, .jf = if_false, .k = value});
  }

  std::vector<sock_filter> code_;
};

}  // namespace

std::vector<sock_filter> system_call_filter(Device device) {
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.answer_unless_equal(AUDIT_ARCH_X86_64, SECCOMP_RET_KILL_PROCESS);
  filter.load_number();
  filter.answer_if_at_least(kFirstOfX32, SECCOMP_RET_KILL_PROCESS);
  filter.for_call(SYS_clone, [&] {
    filter.load_argument(0);
    filter.answer_if_any_bit(kNewNamespaces, refuse_with(EPERM));
    filter.answer(SECCOMP_RET_ALLOW);
  });
  filter.for_call(SYS_ioctl, [&] {
    filter.load_argument(1);
    for (const uint32_t request : {TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS})
      filter.answer_if_equal(request, refuse_with(EPERM));
    filter.answer(SECCOMP_RET_ALLOW);
  });
  // Buffers keep the size that the system gives them, so that what they hold can be told from their number
  // (sandbox/kernel_memory.h). A wish for a larger one is a wish: it is granted without effect.
  filter.for_call(SYS_setsockopt, [&] {
    filter.load_argument(1);
    filter.answer_unless_equal(SOL_SOCKET, SECCOMP_RET_ALLOW);
    filter.load_argument(2);
    for (const uint32_t option : {SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE})
      filter.answer_if_equal(option, refuse_with(0));
    filter.answer(SECCOMP_RET_ALLOW);
  });
  filter.for_call(SYS_fcntl, [&] {
    filter.load_argument(1);
    filter.answer_if_equal(F_SETPIPE_SZ, refuse_with(EPERM));
    filter.answer(SECCOMP_RET_ALLOW);
  });
  for (const uint32_t number : {SYS_socket, SYS_socketpair}) {
    filter.for_call(number, [&] {
      filter.load_argument(0);
      for (const uint32_t family : {AF_UNIX, AF_INET, AF_INET6})
        filter.answer_if_equal(family, SECCOMP_RET_ALLOW);
      filter.answer(refuse_with(EAFNOSUPPORT));
    });
  }
  for (const uint32_t number : kAllowed) filter.answer_if_equal(number, SECCOMP_RET_ALLOW);
  if (device == Device::kGpu) {
    for (const uint32_t number : kAllowedBesideGpu)
      filter.answer_if_equal(number, SECCOMP_RET_ALLOW);
  }
  filter.answer(refuse_with(ENOSYS));
  return std::move(filter).code();
}

}  // namespace slime::sandbox
