// A byte that chooses, then the JSON body that opens a session, or a conversation: messages, and the reply
// to them as {"messages": [...], "reply": {...}}. Units hold each message once, and a turn that comes back
// as it was said is recognised behind exactly its messages.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "engine/chat/messages.h"
#include "engine/http/request_body.h"
#include "engine/http/session_json.h"
#include "engine/sessions/message_unit.h"
#include "engine/sessions/session_store.h"
#include "engine/sessions/turn_history.h"
#include "engine/sessions/turn_tree.h"

namespace {

using namespace slime;
using namespace slime::engine;

void require(bool holds) {
  if (!holds) std::abort();
}

void open_session(std::string_view body) {
  static const ServedModel model{.name = "tiny", .context_length = 4096, .vocab_size = 3};
  try {
    NewSession opened = read_new_session(parse_body(body), model);
    SessionStore store(model, {});
    const auto session = store.open(opened.name, std::move(opened.options));
    require(store.find(session->name()) == session);
    require(session_summary(*session).contains("name"));
    store.remove(session);
  } catch (const ConfigError&) {
  }
}

bool is_assistant(const json::value& message) {
  return message.get_object().at("role") == json::value("assistant");
}

/// Whether a template gets them, as the server asks before it looks for turns.
bool are_well_formed(const json::array& messages) {
  std::vector<std::string> problems;
  static_cast<void>(normalised_messages(messages, TemplateTraits(), problems));
  return problems.empty();
}

void check_units(const json::array& messages, Joining joining) {
  std::size_t at = 0;
  for (const MessageUnit& unit : units_of(messages, joining)) {
    require(unit.first == at && unit.end > at);
    at = unit.end;
    require(joined_message(messages, unit).contains("role"));
  }
  require(at == messages.size());
}

void take_turn(const json::array& messages, const json::object& reply) {
  json::array answered = messages;
  answered.push_back(reply);
  if (messages.empty() || !are_well_formed(answered) || !is_assistant(answered.back())) return;
  for (const Joining joining : {Joining::kAllRoles, Joining::kAllButAssistants})
    check_units(answered, joining);
  for (std::size_t i = 0; i + 1 < answered.size(); ++i)
    if (is_assistant(answered[i]) && is_assistant(answered[i + 1])) return;  // may count as one

  TurnHistory history;
  TurnTree tree;
  SessionTurn& turn = tree.add({.context = {1, 2}, .output = {3}}, nullptr);
  const TextKey offer = key_of("offer");
  require(!history.find(answered, offer));
  TurnHistory::Node& node = history.record(turn, messages, offer, std::nullopt, reply, {});
  const auto found = history.find(answered, offer);
  require(found && found->node == &node && found->unit.first == messages.size());
  require(!history.find(answered, key_of("another offer")));
  history.forget(node);
  require(!history.find(answered, offer));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 's') {
    open_session(text);
    return 0;
  }
  const auto body = try_parse_json(text);
  const json::object* object = body ? body->if_object() : nullptr;
  if (object == nullptr) return 0;
  const json::value* messages = object->if_contains("messages");
  const json::value* reply = object->if_contains("reply");
  if (messages && reply && messages->is_array() && reply->is_object())
    take_turn(messages->get_array(), reply->get_object());
  return 0;
}
