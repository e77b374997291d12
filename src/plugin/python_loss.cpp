#include "plugin/python_loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "kernels/gpu/gpu.h"
#include "plugin/batch_words.h"

namespace slime::plugin {
namespace {

bool is_true(const json::object& value, std::string_view name) {
  const json::value* word = value.if_contains(name);
  return word != nullptr && word->is_bool() && word->get_bool();
}

double number_of(const json::value& word, const std::string& what) {
  if (!word.is_number())
    throw FunctionError(fmt::format("the plug-in host answered with {} that is no number", what));
  return word.to_number<double>();
}

/// What the GPU's driver could give now.
int64_t free_on_gpu(int64_t needed) {
  kernels::Gpu& gpu = kernels::opened_gpu();
  if (gpu.memory_use().free < needed) gpu.release_unused_memory();
  return gpu.memory_use().free;
}

/// Logits and their gradient take `bytes` each, only now. The host's own memory is shared with everybody.
void check_room(int64_t num_tokens, int64_t bytes, bool is_on_gpu) {
  const int64_t needed = 2 * bytes;
  const int64_t available =
      is_on_gpu ? free_on_gpu(needed)
                : static_cast<int64_t>(0.9 * static_cast<double>(available_memory_bytes()));
  if ((available == 0 && !is_on_gpu) || needed < available) return;
  constexpr double kGibibyte = 1 << 30;
  throw FunctionError(fmt::format(
      "--custom-loss-function-path: the function reads the logits of {} tokens, which are {:.1f} "
      "GiB with their gradient; {:.1f} GiB are free{}: lower --max-tokens-per-gpu{}, or take "
      "log-probs from slime.backends.megatron_utils.loss.get_log_probs_and_entropy, which needs no "
      "logits",
      num_tokens, static_cast<double>(needed) / kGibibyte,
      static_cast<double>(available) / kGibibyte, is_on_gpu ? " on the GPU" : "",
      is_on_gpu ? " or --sglang-mem-fraction-static" : ""));
}

class PythonLoss {
 public:
  PythonLoss(TrainerHost& host, SharedTensors& tensors, const PythonLossConfig& config)
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
    const std::vector<int64_t> shape{1, in.num_tokens, in.vocabulary};
    const int64_t bytes =
        in.num_tokens * in.vocabulary * static_cast<int64_t>(c10::elementSize(dtype));
    SharedTensor logits, logits_gradient;
    std::optional<SharedTensors::Apart> apart;  // theirs, on a GPU
    if (tensors_->is_on_gpu()) {
      arguments["logits"] = describe(shape, dtype);
    } else {
      // Behind everything else: most of it is never touched.
      logits = tensors_->space(shape, dtype);
      logits_gradient = tensors_->space(shape, dtype);
      arguments["logits"] = logits.word;
      arguments["logits_gradient"] = logits_gradient.word;
    }

    std::exception_ptr failed;
    const auto answer = [&](const std::string&) {
      json::object words;
      try {
        check_room(in.num_tokens, bytes, tensors_->is_on_gpu());
        if (tensors_->is_on_gpu()) {
          apart.emplace(*tensors_, 2, shape, dtype);
          logits = (*apart)[0];
          logits_gradient = (*apart)[1];
          words = {{"logits", logits.word}, {"logits_gradient", logits_gradient.word}};
        }
        in.write_logits(logits.tensor[0]);
      } catch (...) {
        failed = std::current_exception();  // thrown once the host's answer has come
      }
      return words;
    };
    std::optional<TrainerHost::Returned> returned;
    try {
      returned = host_->call(config_.hook, subject_of(in.batch, in.micro_batch.samples),
                             std::move(arguments), answer);
    } catch (const FunctionError&) {
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
    if (is_true(value, "log_probs")) result.logprob_gradient_T = log_prob_gradient.tensor.cpu();
    if (is_true(value, "entropy")) result.entropy_gradient_T = entropy_gradient.tensor.cpu();
    if (is_true(value, "logits")) result.logits_gradient_LV = logits_gradient.tensor[0];
    if (apart) {
      if (result.logits_gradient_LV.defined())
        result.logits_gradient_LV = result.logits_gradient_LV.clone();
      logits = logits_gradient = {};
      apart->release();
    }
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
    add_nuclei(in.micro_batch, batch);
    return batch;
  }

  /// Of each sample the ids that its response tokens were sampled from, end to end, and [response + 1]
  /// offsets into them.
  void add_nuclei(const train::MicroBatch& micro_batch, json::object& batch) const {
    const kernels::KeptTokens& kept = micro_batch.kept;
    if (!kept.ids.defined()) {
      batch["rollout_top_p_token_ids"] = batch["rollout_top_p_token_offsets"] = nullptr;
      return;
    }
    const Tensor begins_R = kept.offsets.index_select(0, micro_batch.starts);  // and the end
    std::vector<Tensor> offsets;
    std::vector<int64_t> places{0};
    for (int64_t r = 0; r + 1 < micro_batch.starts.size(0); ++r) {
      const auto first = micro_batch.starts[r].item<int64_t>();
      const auto last = micro_batch.starts[r + 1].item<int64_t>();
      offsets.push_back(kept.offsets.slice(0, first, last + 1) - begins_R[r]);
      places.push_back(places.back() + last - first + 1);
    }
    batch["rollout_top_p_token_ids"] =
        rows_from(kept.ids, {begins_R.const_data_ptr<int64_t>(),
                             begins_R.const_data_ptr<int64_t>() + begins_R.size(0)});
    batch["rollout_top_p_token_offsets"] = rows_from(at::cat(offsets), places);
  }

  json::object rows_from(const Tensor& flat, const std::vector<int64_t>& starts) const {
    return {{"rows", tensors_->put(flat.to(at::kInt)).word}, {"starts", json::value_from(starts)}};
  }

  TrainerHost* host_;
  SharedTensors* tensors_;
  PythonLossConfig config_;
};

}  // namespace

train::LossFn make_python_loss(TrainerHost& host, SharedTensors& tensors,
                               const PythonLossConfig& config) {
  return PythonLoss(host, tensors, config);
}

}  // namespace slime::plugin
