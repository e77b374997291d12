/// The requests of the service that train: passes and updates.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "tinker/service.h"
#include "tinker/token_losses.h"
#include "tinker/training_request.h"

namespace slime::tinker {
namespace {

PassAnswer answer_of(train::GivenPass pass, const train::GivenBatch& batch, bool has_elements) {
  PassAnswer answer{.log_probs = std::move(pass.log_probs), .elementwise_loss = {}, .metrics = {}};
  for (std::size_t i = 0; has_elements && i < answer.log_probs.size(); ++i) {
    std::vector<float> elements = answer.log_probs[i];
    for (std::size_t t = 0; t < elements.size(); ++t) {
      elements[t] *= -batch.columns[i].weights[t];
      if (elements[t] == 0) elements[t] = 0;  // no minus zero
    }
    answer.elementwise_loss.push_back(std::move(elements));
  }
  for (const auto& [name, sum] : pass.sums) answer.metrics[name + ":sum"] = sum;
  answer.metrics.try_emplace("loss:sum", 0.0);
  return answer;
}

train::GivenUpdate read_update(const FieldReader& fields) {
  const auto adam = fields.required().fields("adam_params");
  train::GivenUpdate update;
  update.lr = adam->number("learning_rate", 0, 1e3).value_or(update.lr);
  update.beta1 = adam->number("beta1", 0, 1).value_or(update.beta1);
  update.beta2 = adam->number("beta2", 0, 1).value_or(update.beta2);
  update.eps = adam->number("eps", 0, 1).value_or(update.eps);
  update.weight_decay = adam->number("weight_decay", 0, 1e3).value_or(0);
  update.clip_norm = adam->number("grad_clip_norm", 0).value_or(0);
  update.divisor = adam->number("gradient_divisor", 1e-30).value_or(1);
  return update;
}

/// Throws ConfigError where an earlier request of the model has failed.
void require_success(const Futures& futures, const std::string& id) {
  const std::shared_ptr<const Answer> answer = futures.answer_of(id);
  if (!answer || is_failure(*answer))
    throw ConfigError(fmt::format("not updated: request {} has failed", id));
}

}  // namespace

Service::ModelJob Service::pass_job(bool is_forward_only, std::function<TrainingBody()> read) {
  // Read when its turn comes: what is wrong with it is the future's to say.
  return [this, only = is_forward_only, read = std::move(read)](Model& model) -> Answer {
    const TrainingBody body = read();
    TrainedModel& trained = *model.trained;
    const FieldReader config(body.loss_fn_config, "loss_fn_config.");
    const bool has_loss = !only || body.loss_fn != "logprobs";
    const TokenLoss loss = has_loss ? make_token_loss(body.loss_fn, config, trained.train_config())
                                    : TokenLoss{body.loss_fn, {}, no_loss()};
    const train::GivenBatch batch = read_batch(body, loss, limits_);
    train::GivenPass pass;
    stand_still([&] { pass = trained.pass(batch, loss.loss, !only); });
    return answer_of(std::move(pass), batch, body.loss_fn == "cross_entropy");
  };
}

Service::ModelJob Service::message_job(std::shared_ptr<const std::string> message) {
  const TrainingHead head = read_protobuf_head(*message);
  return pass_job(head.is_forward_only, [message, vocab_size = limits_.vocab_size] {
    return read_protobuf_body(*message, vocab_size);
  });
}

Service::ModelJob Service::job_of(const std::string& route,
                                  std::shared_ptr<const json::object> body, bool is_restored) {
  const FieldReader fields(*body, "");
  if (route == "forward" || route == "forward_backward") {
    const bool only = route == "forward" || fields.boolean("forward_only").value_or(false);
    const char* name = route == "forward" && fields.has("forward_input") ? "forward_input"
                                                                         : "forward_backward_input";
    return pass_job(only, [body, name, vocab_size = limits_.vocab_size] {
      return read_json_body(*FieldReader(*body, "").required().fields(name), vocab_size);
    });
  }
  if (route == "optim_step") {
    const train::GivenUpdate update = read_update(fields);
    // This program's own: the passes whose gradients are wanted, without which there is no update.
    const std::vector<std::string> needed = fields.texts("requires", 4096, 64);
    return [this, update, needed](Model& model) -> Answer {
      for (const std::string& pass : needed) require_success(futures_, pass);
      train::GivenUpdateReport report;
      stand_still([&] { report = model.trained->update(update); });
      return json::object{{"metrics",
                           {{"grad_norm:mean", report.grad_norm},
                            {"learning_rate:mean", update.lr},
                            {"step:max", report.step}}},
                          {"type", "optim_step"}};
    };
  }
  if (route == "save_weights") return saving_job(*body, "weights", is_restored);
  if (route == "load_weights") return loading_job(*body);
  check(route == "save_weights_for_sampler", "a request of a model has a known route");
  return saving_job(*body, "sampler_weights", is_restored);
}

json::object Service::forward_backward(json::object body, bool is_forward_only) {
  return enqueue(is_forward_only ? "forward" : "forward_backward", std::move(body));
}

json::object Service::forward_backward_message(std::string body) {
  const TrainingHead head = read_protobuf_head(body);
  AcceptedRequest request{.seq_id = head.seq_id,
                          .route = "forward_backward",
                          .future = {},
                          .is_message = true,
                          .body = std::move(body)};
  return enqueue(head.model_id, std::move(request), [this](std::string message) {
    return message_job(std::make_shared<const std::string>(std::move(message)));
  });
}

json::object Service::optim_step(const json::object& body) { return enqueue("optim_step", body); }

}  // namespace slime::tinker
