#pragma once

/// Limits of one rendering. A chat template is a program from a stranger: it may loop for ever,
/// nest without end or double a string until memory is full. Operations are charged where they are
/// done, by what they did: an element compared, 64 bytes of text looked at, a byte made.

#include <cstddef>
#include <cstdint>
#include <string>

#include "text/jinja/template_error.h"

namespace slime::text::jinja {

struct Limits {
  int64_t steps = 20'000'000;        // evaluated expressions, statements, copied elements
  int64_t bytes = int64_t{1} << 30;  // of all strings and lists made, also those already dropped
  int64_t output_bytes = int64_t{64} << 20;  // of the rendered text
  int depth = 1000;  // nested evaluations; each takes up to about 1 kB of stack
};

/// Thrown while a template is evaluated and caught in Template::render, where it becomes a value:
/// an interpreter unwinds as the interpreted language does.
struct EvaluationError {
  TemplateErrorKind kind;
  std::string message;
};

[[noreturn]] inline void fail_type(std::string message) {
  throw EvaluationError{TemplateErrorKind::kType, std::move(message)};
}
[[noreturn]] inline void fail_undefined(std::string message) {
  throw EvaluationError{TemplateErrorKind::kUndefined, std::move(message)};
}
[[noreturn]] inline void fail_limit(std::string message) {
  throw EvaluationError{TemplateErrorKind::kLimit, std::move(message)};
}

/// What is left of the limits.
class Budget {
 public:
  explicit Budget(const Limits& limits)
      : limits_(limits), steps_(limits.steps), bytes_(limits.bytes) {}

  void take_steps(std::size_t count = 1) {
    steps_ -= static_cast<int64_t>(count);
    if (steps_ < 0)
      fail_limit("the template takes more than " + std::to_string(limits_.steps) + " steps");
  }
  /// A pass over `bytes` of text or of small elements: a step is what 64 bytes take.
  void take_pass(std::size_t bytes) { take_steps(bytes / 64); }
  /// Call before making something of `count` bytes.
  void take_bytes(std::size_t count) {
    if (count > static_cast<std::size_t>(bytes_)) {
      fail_limit("the template makes more than " + std::to_string(limits_.bytes) +
                 " bytes of text");
    }
    bytes_ -= static_cast<int64_t>(count);
  }
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  int64_t steps_;
  int64_t bytes_;
};

/// Counts nesting for as long as it lives.
class DepthGuard {
 public:
  DepthGuard(int& depth, int limit) : depth_(depth) {
    if (++depth_ > limit) {
      --depth_;
      fail_limit("the template nests deeper than " + std::to_string(limit) + " evaluations");
    }
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace slime::text::jinja
