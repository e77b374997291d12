#include "loop/python_loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <optional>

#include "loop/batch_words.h"

namespace slime::loop {
namespace {

bool is_true(const json::object& value, std::string_view name) {
  const json::value* word = value.if_contains(name);
  return word != nullptr && word->is_bool() && word->get_bool();
}

double number_of(const json::value& word, const std::string& what) {
  if (!word.is_number())
    throw plugin::FunctionError(
        fmt::format("the plug-in host answered with {} that is no number", what));
  return word.to_number<double>();
}

/// Logits and their gradient are [L, V] each, and touched only now.
void check_room(const Tensor& logits_LV) {
  const double needed = 2.0 * static_cast<double>(logits_LV.nbytes());
  const auto available = static_cast<double>(plugin::available_memory_bytes());
  if (available == 0 || needed < 0.9 * available) return;
  throw plugin::FunctionError(fmt::format(
      "--custom-loss-function-path: the function reads the logits of {} tokens, which are {:.1f} "
      "GiB "
      "with their gradient; {:.1f} GiB are free: lower --max-tokens-per-gpu, or take log-probs "
      "from "
      "slime.backends.megatron_utils.loss.get_log_probs_and_entropy, which needs no logits",
      logits_LV.size(0), needed / (1 << 30), available / (1 << 30)));
}

class PythonLoss {
 public:
  PythonLoss(plugin::TrainerHost& host, SharedTensors& tensors, const PythonLossConfig& config)
      : host_(&host), tensors_(&tensors), config_(config) {}

  train::LossResult operator()(const train::LossInput& in) const {
    tensors_->begin();
    const auto dtype = in.columns.logprob_T.scalar_type();
    const SharedTensor log_probs = tensors_->put(in.columns.logprob_T);
    const SharedTensor entropy = tensors_->put(in.columns.entropy_T);
    const SharedTensor log_prob_gradient = tensors_->space(log_probs.tensor.sizes(), dtype);
    const SharedTensor entropy_gradient = tensors_->space(log_probs.tensor.sizes(), dtype);
    json::object arguments{{"log_probs", log_probs.word},
                           {"entropy", entropy.word},
                           {"log_probs_gradient", log_prob_gradient.word},
                           {"temperature", config_.temperature},
                           {"calculate_per_token_loss", config_.calculate_per_token_loss}};
    if (in.has_entropy_gradient) arguments["entropy_gradient"] = entropy_gradient.word;
    arguments["batch"] = columns_of(in);
    // Behind everything else: most of it is never touched.
    const SharedTensor logits = tensors_->space({1, in.num_tokens, in.vocabulary}, dtype);
    const SharedTensor logits_gradient = tensors_->space({1, in.num_tokens, in.vocabulary}, dtype);
    arguments["logits"] = logits.word;
    arguments["logits_gradient"] = logits_gradient.word;

    std::exception_ptr failed;
    const auto answer = [&](const std::string&) {
      try {
        check_room(logits.tensor[0]);
        in.write_logits(logits.tensor[0]);
      } catch (...) {
        failed = std::current_exception();  // thrown once the host's answer has come
      }
    };
    std::optional<plugin::TrainerHost::Returned> returned;
    try {
      returned = host_->call(config_.hook, subject_of(in.batch, in.micro_batch.samples),
                             std::move(arguments), answer);
    } catch (const plugin::FunctionError&) {
      if (failed) std::rethrow_exception(failed);
      throw;
    }
    if (failed) std::rethrow_exception(failed);

    train::LossResult result;
    const json::object& value = returned->value;
    if (const json::value* loss = value.if_contains("loss"))
      result.loss = number_of(*loss, "a loss");
    if (const json::value* metrics = value.if_contains("metrics");
        metrics && metrics->is_object()) {
      for (const auto& metric : metrics->get_object())
        result.metrics[std::string(metric.key())] = number_of(metric.value(), "a metric");
    }
    if (is_true(value, "log_probs")) result.logprob_gradient_T = log_prob_gradient.tensor;
    if (is_true(value, "entropy")) result.entropy_gradient_T = entropy_gradient.tensor;
    if (is_true(value, "logits")) result.logits_gradient_LV = logits_gradient.tensor[0];
    return result;
  }

 private:
  json::object columns_of(const train::LossInput& in) const {
    json::object batch = batch_words(in.batch, in.micro_batch.samples, *tensors_);
    const algo::PolicyColumns& columns = in.columns;
    batch["loss_masks"] = rows_word(columns.trained_T.to(at::kInt), *tensors_);
    batch["log_probs"] = columns.old_T.defined() ? rows_word(columns.old_T, *tensors_)
                                                 : rows_word(columns.logprob_T, *tensors_);
    batch["ref_log_probs"] = rows_word(columns.ref_T, *tensors_);
    batch["rollout_log_probs"] = rows_word(columns.engine_T, *tensors_);
    batch["teacher_log_probs"] = rows_word(in.teacher_T, *tensors_);
    batch["advantages"] = rows_word(columns.advantage_T, *tensors_);
    batch["returns"] = rows_word(in.return_T, *tensors_);
    batch["values"] = rows_word(in.value_T, *tensors_);
    return batch;
  }

  plugin::TrainerHost* host_;
  SharedTensors* tensors_;
  PythonLossConfig config_;
};

}  // namespace

train::LossFn make_python_loss(plugin::TrainerHost& host, SharedTensors& tensors,
                               const PythonLossConfig& config) {
  return PythonLoss(host, tensors, config);
}

}  // namespace slime::loop
