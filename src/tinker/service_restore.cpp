/// The part of the service that outlives its process: what is written down, and how it is taken up again.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/safe_text.h"
#include "tinker/service.h"
#include "tinker/user_metadata.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

int64_t number_behind(const std::string& id, std::string_view mark) {
  const std::size_t at = id.rfind(mark);
  return at == std::string::npos ? 0 : std::atoll(id.c_str() + at + mark.size());
}

std::string where(const std::string& model, const AcceptedRequest& kept) {
  return fmt::format("{}, request {} as it was kept", model, kept.seq_id);
}

Answer read_answer(const std::string& model, const AcceptedRequest& answer) {
  if (answer.is_message) return read_pass_answer(answer.body);
  json::value value = parse_json(answer.body, where(model, answer));
  if (!value.is_object()) throw ConfigError(where(model, answer) + ": should be an object");
  return std::move(value.get_object());
}

/// What failed changed nothing, and is not done again: by now it might not fail. But an update that fails
/// has dropped the gradients, and does so again.
bool fails_again(const std::string& model, const AcceptedRequest& answer) {
  if (answer.is_message || answer.route == "optim_step") return false;
  return is_failure(read_answer(model, answer));
}

}  // namespace

void Service::restore() {
  for (const auto& [id, session] : journal_->read(Journal::Kind::kSession)) {
    const FieldReader fields(session, id + ": ");
    sessions_[id] = {.owner = fields.text("owner").value_or(""),
                     .heard = std::chrono::steady_clock::now(),
                     .is_over = fields.boolean("is_over").value_or(false)};
    num_sessions_ = std::max(num_sessions_, number_behind(id, "session-"));
  }
  const auto is_open = [this](const std::string& id) {
    const auto session = sessions_.find(id.substr(0, id.find(':')));
    return session != sessions_.end() && !session->second.is_over;
  };
  for (const auto& [id, sampler] : journal_->read(Journal::Kind::kSampler)) {
    if (!is_open(id)) {
      journal_->remove(Journal::Kind::kSampler, id);
      continue;
    }
    const FieldReader fields(sampler, id + ": ");
    Named named{.snapshot = {},
                .is_base = fields.boolean("is_base").value_or(false),
                .path = fields.text("path").value_or(""),
                .model = fields.text("model").value_or(""),
                .order = fields.integer("order").value_or(0),
                .directory = fields.text("directory").value_or("")};
    if (!named.model.empty()) newest_samplers_.push_back(id);
    samplers_[id] = std::move(named);
    num_samplers_ = std::max(num_samplers_, number_behind(id, ":sample:own-"));
    num_snapshots_ = std::max(num_snapshots_, samplers_[id].order);
  }
  std::ranges::sort(newest_samplers_, {},
                    [this](const std::string& id) { return samplers_[id].order; });
  for (const auto& [id, record] : journal_->read(Journal::Kind::kModel)) {
    if (is_open(id)) {
      restore_model(id, record);
    } else {
      forget_models({id});  // the process died while it ended the session
    }
  }
}

void Service::restore_model(const std::string& id, const json::object& record) {
  const FieldReader fields = FieldReader(record, id + ": ").required();
  auto model = std::make_shared<Model>();
  model->id = id;
  model->session = fields.text("session").value_or("");
  model->number = fields.integer("number").value_or(0);
  model->user_metadata = read_user_metadata(fields);
  const auto [done, state] = journal_->newest_state(id);
  const std::string created = fields.text("future").value_or("");
  created_[fmt::format("{}/{}", model->session, model->number)] = created;
  futures_.open_again(created);
  const auto read = [this, at = model.get(), record, created, done = done, state = state] {
    try {
      std::shared_ptr<TrainedModel> made =
          state.empty() ? make_model(record) : read_model(state, true);
      at->num_done = done;
      const std::lock_guard lock(mutex_);
      at->trained = std::move(made);
    } catch (const std::exception& error) {
      fmt::print(stderr, "slime tinker: {} cannot be restored: {}\n", at->id,
                 safe_text(error.what()));
      futures_.fail(created, error.what(), Blame::kServer);
      const std::lock_guard lock(mutex_);
      drop_requests(*at, error.what(), Blame::kServer);
      models_.erase(at->id);
      return;
    }
    futures_.answer(created, created_answer(at->id, record));
  };
  model->jobs.push_back({created, read});
  const int64_t num_again = restore_requests(model, done);
  models_[id] = model;
  fmt::print(stderr, "slime tinker: {} goes on behind request {}, {} are done again\n", id, done,
             num_again);
}

std::map<int64_t, AcceptedRequest> Service::restore_answers(Model& model) {
  std::map<int64_t, AcceptedRequest> answered;
  for (AcceptedRequest& answer : journal_->answers(model.id)) {
    futures_.open_again(answer.future);
    futures_.answer(answer.future, read_answer(model.id, answer));
    model.order.remember(answer.seq_id, answer.future);
    model.num_answered = std::max(model.num_answered, answer.seq_id);
    answered[answer.seq_id] = std::move(answer);
  }
  return answered;
}

int64_t Service::restore_requests(const SharedModel& model, int64_t done) {
  const std::map<int64_t, AcceptedRequest> answered = restore_answers(*model);
  model->order.go_on_from(done + 1);
  model->deleted = journal_->deletions(model->id, done);
  for (const auto& [behind, name] : model->deleted)
    model->num_answered = std::max(model->num_answered, behind);
  int64_t count = 0;
  for (AcceptedRequest& request : journal_->requests(model->id, done)) {
    futures_.open_again(request.future);
    const auto known = answered.find(request.seq_id);
    if (known != answered.end()) model->order.go_on_from(request.seq_id);
    ModelJob job;
    if (known != answered.end() && fails_again(model->id, known->second)) {
      job = [id = model->id, answer = known->second](Model&) { return read_answer(id, answer); };
    } else if (request.is_message) {
      job = message_job(std::make_shared<const std::string>(std::move(request.body)));
    } else {
      json::value body = parse_json(request.body, where(model->id, request));
      job = job_or_failure(request.route, std::move(body.as_object()), /*is_restored=*/true);
    }
    request.body.clear();
    add_job(model, request, std::move(job));
    ++count;
  }
  return count;
}

void Service::save_state(Model& model) {
  or_refuse(503, [&] {
    saves_->finish([&](const NamedSave& save) { return save.model == model.id; });
    save_snapshots(model);
    model.trained->save(journal_->state(model.id, model.num_done), true);
  });
  journal_->forget(model.id, model.num_done);
  model.unsaved_seconds = 0;
}

void Service::save_snapshots(const Model& model) {
  struct Unsaved {
    std::string id;
    SharedSnapshot snapshot;
    int64_t order;
  };
  std::vector<Unsaved> unsaved;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, named] : samplers_) {
      if (named.model == model.id && named.snapshot && named.directory.empty())
        unsaved.push_back({id, named.snapshot, named.order});
    }
  }
  for (const auto& [id, snapshot, order] : unsaved) {
    const fs::path directory = journal_->folder(model.id) / "snapshots" / stored_name(id);
    write_snapshot(*snapshot, directory);
    const std::lock_guard lock(mutex_);
    const auto known = samplers_.find(id);
    if (known == samplers_.end()) continue;
    journal_->write(Journal::Kind::kSampler, id,
                    {{"model", model.id}, {"order", order}, {"directory", directory.string()}});
    known->second.directory = directory;
  }
}

}  // namespace slime::tinker
