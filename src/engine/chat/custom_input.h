#pragma once

/// Text of a custom tool's call, out of the arguments {"input": "..."} while they stream.

#include <cstddef>
#include <string>
#include <string_view>

namespace slime::engine {

/// One call. Arguments that are no such object are given out at the end: the member `input` of
/// another object, all else as it is.
class CustomInput final {
 public:
  /// A delta of the arguments; the text that it decided.
  std::string add(std::string_view arguments);
  /// The rest.
  std::string finish();

 private:
  enum class State : unsigned char { kBefore, kText, kAfter, kOther };
  void step(char byte, std::string& out);
  void step_in_text(char byte, std::string& out);
  void end_escape(std::string& out);

  State state_ = State::kBefore;
  std::size_t num_begun_ = 0;  // of what stands in front of the text, without white space
  std::string read_;           // up to the text, or all where it is no such object
  std::string escape_;         // of an escape that is not whole
};

}  // namespace slime::engine
