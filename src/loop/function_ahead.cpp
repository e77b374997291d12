#include "loop/function_ahead.h"

#include <chrono>

#include "core/error.h"
#include "core/interrupt.h"
#include "loop/step_abandoned.h"

namespace slime::loop {
namespace {

constexpr std::chrono::milliseconds kLook{100};

}  // namespace

FunctionAhead::~FunctionAhead() {
  stop_ = true;
  if (call_.valid()) call_.wait();
}

void FunctionAhead::begin(int64_t step) {
  if (step >= num_steps_ || function_.has_sampled(step)) return;
  check(!call_.valid(), "one step is sampled at a time");
  call_ = std::async(std::launch::async, [this, step] { function_.draw(step, stop_); });
}

/// Also looks after the trainers, without whom nobody needs what is sampled.
bool FunctionAhead::is_under_way() {
  if (!call_.valid() || call_.wait_for(kLook) == std::future_status::ready) return false;
  if (trainers_.has_failed()) stop_ = true;
  return true;
}

report::Collected FunctionAhead::take(int64_t step) {
  const auto range = recorder_.phase("wait", "prompts", groups_per_step_);
  while (is_under_way()) {
    if (core::Interrupt::came()) throw StepAbandoned();
  }
  try {
    memory_.explain_shortage(estimate::Phase::kGenerate, [this] {
      if (call_.valid()) call_.get();
    });
  } catch (...) {
    trainers_.check_alive();
    throw;
  }
  trainers_.check_alive();
  check(function_.has_sampled(step), "steps are begun before they are taken");
  last_taken_ = step;
  return function_.take_sampled(std::nullopt);
}

bool FunctionAhead::wait(const std::atomic<bool>& gives_up) {
  while (!gives_up && is_under_way()) {
  }
  return !gives_up;
}

}  // namespace slime::loop
