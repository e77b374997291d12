#pragma once

/// Syntax of calls as a format writes them: what grammars that force or bind calls are made of.
///
/// NAME in a text stands for a tool's name. The calls of a message are
///
///   open  begin arguments end  separator  begin arguments end  ...  close

#include <cstdint>
#include <string_view>

namespace slime::text {

enum class ArgumentForm : uint8_t {
  kJson,    // an object
  kTagged,  // parameter by parameter, with ParameterTags; strings are bare
  kPython,  // keyword arguments: a="x", b=[1]
  kGemma,   // a:<|"|>x<|"|>,b:[1]
};

/// <parameter=KEY> value </parameter>. IS_STRING in a text stands for whether the value is one.
struct ParameterTags {
  std::string_view key_open;
  std::string_view key_close;  // up to the value
  std::string_view value_close;
};

struct CallSyntax {
  std::string_view open = {};
  std::string_view begin = {};  // empty: the format is not written
  std::string_view end = {};
  std::string_view separator = {};
  std::string_view close = {};
  ArgumentForm form = ArgumentForm::kJson;
  ParameterTags tags = {};
  /// Between `begin` and the arguments: a number, and this.
  std::string_view after_number = {};
  /// Text that only calls begin with, the first part of `open` or `begin`: where calls may come and need
  /// not, text is free up to it. Empty: only a whole message can be calls, and any other begins with a
  /// character of `text_first`, a class of a regular expression.
  std::string_view trigger = {};
  std::string_view text_first = {};
  /// The message ends with the first call.
  bool has_one_call = false;
};

}  // namespace slime::text
