#include "gateway/request_facts.h"

#include <algorithm>
#include <array>

#include "core/json.h"

namespace slime::gateway {
namespace {

constexpr std::size_t kMaxRidsText = 64 << 10;
constexpr std::size_t kMaxKeyText = 1 << 10;

/// Fields and headers that name a conversation, the most exact first.
constexpr std::array<std::string_view, 4> kKeyHeaders{"X-SMG-Routing-Key", "X-Session-Id",
                                                      "session_id", "conversation_id"};
constexpr std::array<std::string_view, 5> kKeyFields{"session_id", "session_params",
                                                     "prompt_cache_key", "metadata", "user"};
constexpr std::array<std::string_view, 5> kPromptFields{"input_ids", "messages", "text", "prompt",
                                                        "input"};

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// Reads JSON without looking at more than brackets and quotes.
class Skimmer final {
 public:
  explicit Skimmer(std::string_view text) : text_(text) {}

  /// Skips spaces; whether `c` follows, which is taken.
  bool take(char c) {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  /// Between the quotes; false: there is no whole text here.
  bool take_text(std::string_view& inside) {
    if (!take('"')) return false;
    const std::size_t begin = at_;
    if (!skip_rest_of_text()) return false;
    inside = text_.substr(begin, at_ - 1 - begin);
    return true;
  }

  bool take_value(std::string_view& value) {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    const std::size_t begin = at_;
    std::size_t depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        if (!skip_rest_of_text()) return false;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (depth == 0) break;
        --depth;
        ++at_;
      } else if (depth == 0 && (c == ',' || is_space(c))) {
        break;
      } else {
        ++at_;
        continue;
      }
      if (depth == 0) break;
    }
    value = text_.substr(begin, at_ - begin);
    return depth == 0 && !value.empty();
  }

 private:
  bool skip_rest_of_text() {
    while (at_ < text_.size()) {
      at_ = text_.find_first_of("\"\\", at_);
      if (at_ == std::string_view::npos) break;
      if (text_[at_] == '"') {
        ++at_;
        return true;
      }
      at_ += 2;
    }
    at_ = text_.size();
    return false;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

const MemberSpan* find(const std::vector<MemberSpan>& members, std::string_view name) {
  const auto found = std::ranges::find(members, name, &MemberSpan::name);
  return found == members.end() ? nullptr : &*found;
}

std::string text_of(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : std::string();
}

std::string text_of(const MemberSpan* member) {
  if (member == nullptr || member->value.size() > kMaxKeyText) return {};
  const auto value = try_parse_json(member->value);
  return value ? text_of(*value) : std::string();
}

/// "/sessions/a-17/v1/messages" -> "a-17"; of a new one its body names it.
std::string session_in(const net::HttpRequest& request, const std::vector<MemberSpan>& members) {
  constexpr std::string_view kSessions = "/sessions/";
  if (request.path == "/sessions") return text_of(find(members, "name"));
  if (!request.path.starts_with(kSessions)) {
    return std::string(request.header("X-Slime-Session").value_or(""));
  }
  const std::string_view rest = std::string_view(request.path).substr(kSessions.size());
  return std::string(rest.substr(0, rest.find('/')));
}

std::string model_in(const net::HttpRequest& request, const std::vector<MemberSpan>& members) {
  constexpr std::string_view kModels = "/v1/models/";
  if (request.path.starts_with(kModels)) return request.path.substr(kModels.size());
  return text_of(find(members, "model"));
}

/// A text, a number, or the id within an object.
std::string key_of(std::string_view field, std::string_view span) {
  if (span.size() > kMaxKeyText) return {};
  const auto value = try_parse_json(span);
  if (!value) return {};
  if (const json::object* object = value->if_object()) {
    for (const char* name : {"session_id", "id", "user_id"}) {
      const json::value* inner = object->if_contains(name);
      if (inner != nullptr && !text_of(*inner).empty()) return text_of(*inner);
    }
    return {};
  }
  if (field == "metadata" || field == "session_params") return {};
  if (value->is_string()) return text_of(*value);
  return value->is_number() ? std::string(span) : std::string();
}

std::vector<std::string> rids_of(std::string_view span) {
  if (span.size() > kMaxRidsText) return {};
  const auto value = try_parse_json(span);
  std::vector<std::string> rids;
  if (!value) return rids;
  if (const json::array* list = value->if_array()) {
    for (const json::value& each : *list)
      if (each.is_string()) rids.push_back(text_of(each));
  } else if (value->is_string()) {
    rids.push_back(text_of(*value));
  }
  return rids;
}

std::string_view without_end(std::string_view span) {
  if (!span.empty() && (span.back() == ']' || span.back() == '"' || span.back() == '}'))
    span.remove_suffix(1);
  return span;
}

}  // namespace

std::vector<MemberSpan> top_members(std::string_view text, std::size_t limit) {
  std::vector<MemberSpan> members;
  Skimmer skimmer(text);
  if (!skimmer.take('{')) return members;
  do {
    MemberSpan member;
    if (members.size() == limit || !skimmer.take_text(member.name) || !skimmer.take(':') ||
        !skimmer.take_value(member.value)) {
      break;
    }
    members.push_back(member);
  } while (skimmer.take(','));
  return members;
}

RequestFacts facts_of(const net::HttpRequest& request) {
  RequestFacts facts;
  for (const std::string_view name : kKeyHeaders) {
    if (!facts.routing_key.empty()) break;
    if (const auto value = request.header(name)) facts.routing_key = *value;
  }
  const std::vector<MemberSpan> members = top_members(request.body);
  facts.model = model_in(request, members);
  facts.session = session_in(request, members);
  if (const MemberSpan* rid = find(members, "rid")) facts.rids = rids_of(rid->value);
  for (const std::string_view name : kKeyFields) {
    if (!facts.routing_key.empty()) break;
    if (const MemberSpan* field = find(members, name))
      facts.routing_key = key_of(name, field->value);
  }
  for (const std::string_view name : kPromptFields) {
    const MemberSpan* field = find(members, name);
    if (field == nullptr || field->value == "null") continue;
    facts.prompt = without_end(field->value);
    break;
  }
  return facts;
}

}  // namespace slime::gateway
