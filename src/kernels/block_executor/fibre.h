#pragma once

/// Fibres: functions with a stack each that run on one thread, cooperatively, each until it switches to another.

#include <cstddef>
#include <functional>
#include <memory>

namespace slime::kernels {

/// A function with a stack of its own. It runs while it is switched to, and must switch away when it has
/// ended its work: it never returns.
class Fibre {
 public:
  /// The stack of the thread that makes it.
  Fibre();
  explicit Fibre(std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// From this one, which runs, to `other`. Returns when somebody switches back.
  void switch_to(Fibre& other);

 private:
  struct Context;
  static void enter(unsigned high, unsigned low);

  std::unique_ptr<Context> context_;
};

}  // namespace slime::kernels
