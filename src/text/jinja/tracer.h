#pragma once

/// Tracer of one rendering: knows whose turn of which loop is running, and fills a Trace.
///
/// A turn of a loop whose element is a subject writes for that subject. In a loop over something
/// else, such as indices, the first subject that is put into a variable begins.

#include <cstddef>

#include "text/jinja/trace.h"
#include "text/jinja/value.h"

namespace slime::text::jinja {

class Tracer {
 public:
  /// `trace` may be null: then nothing is followed. It outlives the object.
  explicit Tracer(Trace* trace) : trace_(trace) {}

  bool is_on() const { return trace_ != nullptr; }

  /// `size` bytes of the rendered text were written from `begin` on.
  void wrote(std::size_t begin, std::size_t size);
  void generated(std::size_t begin, std::size_t end);
  /// A variable was set.
  void assigned(const Value& value) {
    if (may_begin_) begin(value);
  }

  /// A turn of a loop, for as long as it lives.
  class Turn {
   public:
    Turn(Tracer& tracer, const Value& item);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Tracer& tracer_;
    const int outer_;
    const bool outer_may_begin_;
  };

 private:
  bool begin(const Value& value);

  Trace* const trace_;
  int subject_ = Trace::kNone;  // of what is written now
  bool may_begin_ = false;      // in a turn of a loop over something else
};

}  // namespace slime::text::jinja
