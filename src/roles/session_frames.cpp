#include "roles/session_frames.h"

#include <fmt/format.h>

#include <charconv>

#include "core/error.h"
#include "core/field_reader.h"

namespace slime::roles {

std::string to_text(const KeptEngineState& state) {
  return json_text(json::object{{"ready", to_text(state.ready)},
                                {"version", state.version},
                                {"checksum", fmt::format("{:016x}", state.checksum)},
                                {"process", state.process}});
}

KeptEngineState kept_engine_state_from(std::string_view text) {
  const auto parsed = try_parse_json(text);
  if (!parsed || !parsed->is_object())
    throw ConfigError("an engine of the session says what no engine of this program says");
  const FieldReader fields =
      FieldReader(parsed->get_object(), "an engine of the session: ").required();
  KeptEngineState state{.ready = engine_ready_from(*fields.text("ready")),
                        .version = *fields.integer("version"),
                        .process = *fields.integer("process", 1)};
  const std::string digits = *fields.text("checksum");
  std::from_chars(digits.data(), digits.data() + digits.size(), state.checksum, 16);
  return state;
}

}  // namespace slime::roles
