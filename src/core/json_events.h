#pragma once

/// Events of the JSON parser, all passed over: the base of handlers that look at some of them.
///
///   struct Handler : JsonEvents {
///     bool on_null(Code&) { ++count; return true; }
///   };
///   json::basic_parser<Handler> parser(json_limits());

#include <boost/json/basic_parser_impl.hpp>
#include <cstddef>
#include <cstdint>

#include "core/json.h"

namespace slime {

struct JsonEvents {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  using Code = json::error_code;
  /// Ends the pass.
  static bool stop(Code& error) {
    error = json::error::syntax;
    return false;
  }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return true; }
  bool on_object_end(std::size_t, Code&) { return true; }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(std::size_t, Code&) { return true; }
  bool on_key_part(json::string_view, std::size_t, Code&) { return true; }
  bool on_key(json::string_view, std::size_t, Code&) { return true; }
  bool on_string_part(json::string_view, std::size_t, Code&) { return true; }
  bool on_string(json::string_view, std::size_t, Code&) { return true; }
  bool on_number_part(json::string_view, Code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, Code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, Code&) { return true; }
  bool on_double(double, json::string_view, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(json::string_view, Code&) { return true; }
  bool on_comment(json::string_view, Code&) { return true; }
};

/// Limit of the nesting of texts.
inline json::parse_options json_limits() {
  json::parse_options options;
  options.max_depth = 64;
  return options;
}

}  // namespace slime
