/// The sessions of the service: whose they are, and what ends with them.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tinker/service.h"

namespace slime::tinker {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kMostSessions = 1024;

}  // namespace

void Service::require_session(const std::string& session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.is_over)
    throw Refusal(404, fmt::format("session_id {}: there is no such session", session));
}

void Service::hear(const std::string& session) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second.heard = steady_clock::now();
}

void Service::require_owner(const std::string& owner, const std::string& id) const {
  constexpr std::string_view kBefore = "tinker://";
  const std::string plain = id.starts_with(kBefore) ? id.substr(kBefore.size()) : id;
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(plain.substr(0, plain.find_first_of(":/")));
  if (found != sessions_.end() && found->second.owner != owner)
    throw Refusal(404, fmt::format("{}: there is none", id));
}

json::object Service::create_session(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto is_open = [](const auto& each) { return !each.second.is_over; };
  if (std::ranges::count_if(sessions_, is_open) >= kMostSessions)
    throw Refusal(429, fmt::format("{} sessions are open; finish some", kMostSessions));
  const std::string id = fmt::format("session-{}", num_sessions_ + 1);
  if (journal_) journal_->write(Journal::Kind::kSession, id, {{"owner", owner}});
  ++num_sessions_;
  sessions_[id] = {.owner = owner, .heard = steady_clock::now()};
  return {{"type", "create_session"}, {"session_id", id}};
}

json::object Service::session_heartbeat(const json::object& body) {
  const std::lock_guard lock(mutex_);
  const std::string id = FieldReader(body, "").required().text("session_id", 256).value_or("");
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.is_over)
    throw Refusal(410, fmt::format("session {} is over", id));
  found->second.heard = steady_clock::now();
  return {{"type", "session_heartbeat"}};
}

json::object Service::finish_session(const std::string& session) {
  const auto is_its = [&](const NamedSave& save) { return save.model.starts_with(session + ":"); };
  std::vector<std::string> ended;
  for (bool is_done = false; !is_done;) {
    // Their requests are forgotten with the session.
    or_refuse(503, [&] { saves_->finish(is_its); });
    const std::lock_guard lock(mutex_);
    is_done = !saves_->has(is_its);
    if (is_done) ended = end_session(session);
  }
  forget_models(ended);
  return {{"type", "finish_session"}};
}

std::vector<std::string> Service::end_session(const std::string& session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.is_over) return {};
  // Kept: who owns what it has saved.
  if (journal_)
    journal_->write(Journal::Kind::kSession, session,
                    {{"owner", found->second.owner}, {"is_over", true}});
  found->second.is_over = true;
  std::vector<std::string> ended = end_models_of(session);
  std::erase_if(samplers_, [&](const auto& each) {
    const bool is_its = each.first.starts_with(session + ":");
    if (is_its && journal_) journal_->remove(Journal::Kind::kSampler, each.first);
    return is_its;
  });
  std::erase_if(newest_samplers_,
                [&](const std::string& id) { return id.starts_with(session + ":"); });
  std::erase_if(created_, [&](const auto& each) { return each.first.starts_with(session + "/"); });
  return ended;
}

void Service::forget_models(const std::vector<std::string>& ids) {
  if (!journal_) return;
  for (const std::string& id : ids) {
    journal_->forget_model(id);
    journal_->remove(Journal::Kind::kModel, id);
  }
}

void Service::end_silent_sessions() {
  if (!journal_) return;  // a script's own ends with the script
  std::unique_lock lock(mutex_);
  std::vector<std::string> silent, ended;
  for (const auto& [id, session] : sessions_) {
    const std::string models = id + ":";
    const auto is_its = [&](const NamedSave& save) { return save.model.starts_with(models); };
    if (!session.is_over && session.heard < steady_clock::now() - service_.longest_silence &&
        !saves_->has(is_its))
      silent.push_back(id);
  }
  for (const std::string& id : silent) {
    if (write_or_tell(id, [&] { std::ranges::copy(end_session(id), std::back_inserter(ended)); })) {
      fmt::print(stderr, "slime tinker: {} was silent for {} seconds, and is over\n", id,
                 service_.longest_silence.count());
    } else {
      hear(id);  // tried again when it has been silent for as long once more
    }
  }
  lock.unlock();
  forget_models(ended);
}

std::vector<std::string> Service::end_models_of(const std::string& session) {
  std::vector<std::string> ended;
  for (auto each = models_.begin(); each != models_.end();) {
    const SharedModel model = each->second;
    if (model->session != session) {
      ++each;
      continue;
    }
    model->is_over = true;
    ended.push_back(model->id);
    drop_requests(*model, fmt::format("session {} is over", session), Blame::kUser);
    each = models_.erase(each);
  }
  return ended;
}

void Service::drop_requests(Model& model, const std::string& reason, Blame blame) {
  for (const Model::Ready& ready : model.jobs) futures_.fail(ready.future, reason, blame);
  model.jobs.clear();
  if (const auto waiting = model.order.give_up(steady_clock::time_point::max())) {
    for (const auto& [seq_id, future] : waiting->futures) futures_.fail(future, reason, blame);
  }
}

}  // namespace slime::tinker
