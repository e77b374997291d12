#include "text/grammar/engine_log.h"

#include <string_view>

#include "core/error.h"

namespace slime::text {
namespace {

thread_local std::vector<std::string>* warnings_of_thread = nullptr;

constexpr int kWarning = 2;

/// Without the condition that the engine's macro writes in front: "Check failed: (x) is false: ".
std::string without_condition(const std::string& message) {
  constexpr std::string_view kMark = ") is false: ";
  const std::size_t at = message.find(kMark);
  const bool has_more = at != std::string::npos && at + kMark.size() < message.size();
  return has_more ? message.substr(at + kMark.size()) : message;
}

}  // namespace

EngineWarnings::EngineWarnings() {
  check(warnings_of_thread == nullptr, "one object at a time keeps a thread's warnings");
  warnings_of_thread = &all_;
}

EngineWarnings::~EngineWarnings() { warnings_of_thread = nullptr; }

}  // namespace slime::text

/// What the engine calls, where it is built with XGRAMMAR_LOG_CUSTOMIZE (cmake/xgrammar.cmake).
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message);
void LogMessageImpl(const std::string&, int, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw slime::ConfigError(slime::text::without_condition(message));
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level == slime::text::kWarning && slime::text::warnings_of_thread != nullptr)
    slime::text::warnings_of_thread->push_back(message);
}

}  // namespace xgrammar
