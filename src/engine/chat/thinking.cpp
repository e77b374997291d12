#include "engine/chat/thinking.h"

namespace slime::engine {

void switch_thinking(bool is_on, json::object& template_options) {
  template_options.emplace("enable_thinking", is_on);
  template_options.emplace("thinking", is_on);
}

void set_reasoning_effort(std::string_view effort, json::object& template_options) {
  template_options.emplace("reasoning_effort", effort);
  if (effort == "none") switch_thinking(false, template_options);
}

}  // namespace slime::engine
