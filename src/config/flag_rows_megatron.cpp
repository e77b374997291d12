// What Megatron's scripts say about the model's shape and about ranks.

#include "config/flag_rows.h"

namespace slime::config {
namespace {

using C = RunConfig;

/// Fields of config.json that scripts repeat and that have one meaning here.
std::vector<FlagRow> flags_read_from_config() {
  std::vector<FlagRow> flags;
  for (const char* name :
       {"--group-query-attention", "--swiglu", "--disable-bias-linear", "--add-qkv-bias",
        "--qk-layernorm", "--use-rotary-position-embeddings", "--use-rope-scaling",
        "--untie-embeddings-and-output-weights", "--apply-layernorm-1p", "--attention-output-gate",
        "--use-gated-attention", "--multi-latent-attention", "--moe-shared-expert-gate",
        "--moe-router-pre-softmax", "--no-position-embedding", "--post-mlp-layernorm",
        "--post-self-attn-layernorm", "--rotary-interleaved"}) {
    flags.push_back(accepted(name, kSwitch, kFromConfig));
  }
  for (const char* name :
       {"--normalization", "--position-embedding-type", "--max-position-embeddings",
        "--rotary-scaling-factor", "--mscale", "--mscale-all-dim", "--moe-layer-freq",
        "--moe-router-score-function", "--mtp-num-layers"}) {
    flags.push_back(accepted(name, kValue, kFromConfig));
  }
  return flags;
}

}  // namespace

std::vector<FlagRow> shape_flags() {
  constexpr std::string_view kChecked = "checked against config.json";
  constexpr std::string_view kNoDropout = "there is no dropout";
  std::vector<FlagRow> flags = {
      works("--num-layers", &C::num_layers, kChecked).when(kAnyRun),
      works("--hidden-size", &C::hidden_size, kChecked).when(kAnyRun),
      works("--ffn-hidden-size", &C::ffn_hidden_size, kChecked).when(kAnyRun),
      works("--num-attention-heads", &C::num_attention_heads, kChecked).when(kAnyRun),
      works("--num-query-groups", &C::num_query_groups, kChecked).when(kAnyRun),
      works("--kv-channels", &C::kv_channels, kChecked).when(kAnyRun),
      works("--vocab-size", &C::vocab_size, kChecked).when(kAnyRun),
      works("--rotary-base", &C::rotary_base, kChecked).when(kAnyRun),
      works("--norm-epsilon", &C::norm_epsilon, kChecked).when(kAnyRun),
      works("--rotary-percent", &C::rotary_percent, kChecked).when(kAnyRun),
      works("--num-experts", &C::num_experts, kChecked).when(kAnyRun),
      works("--moe-ffn-hidden-size", &C::moe_ffn_hidden_size, kChecked).when(kAnyRun),
      works("--moe-router-topk", &C::moe_router_topk, kChecked).when(kAnyRun),
      works("--moe-shared-expert-intermediate-size", &C::moe_shared_expert_intermediate_size,
            kChecked)
          .when(kAnyRun),
      works("--moe-router-num-groups", &C::moe_router_num_groups, kChecked).when(kAnyRun),
      works("--moe-router-group-topk", &C::moe_router_group_topk, kChecked).when(kAnyRun),
      works("--moe-router-topk-scaling-factor", &C::moe_router_topk_scaling_factor, kChecked)
          .when(kAnyRun),
      works("--q-lora-rank", &C::q_lora_rank, kChecked).when(kAnyRun),
      works("--kv-lora-rank", &C::kv_lora_rank, kChecked).when(kAnyRun),
      works("--qk-head-dim", &C::qk_head_dim, kChecked).when(kAnyRun),
      works("--qk-pos-emb-head-dim", &C::qk_pos_emb_head_dim, kChecked).when(kAnyRun),
      works("--v-head-dim", &C::v_head_dim, kChecked).when(kAnyRun),
      accepted("--make-vocab-size-divisible-by", kValue, "the vocabulary is not padded"),
      accepted("--padded-vocab-size", kValue, "the vocabulary is not padded"),
      accepted("--seq-length", kValue, "lengths vary; nothing is padded"),
      accepted("--attention-dropout", kValue, kNoDropout),
      accepted("--hidden-dropout", kValue, kNoDropout),
      accepted("--attention-softmax-in-fp32", kSwitch, kAlways),
      accepted("--attention-backend", kValue, kGpuPath),
      accepted("--no-rope-fusion", kSwitch, kGpuPath),
      accepted("--no-masked-softmax-fusion", kSwitch, kGpuPath),
      accepted("--qwen-gdn-backend", kValue, kGpuPath),
      accepted("--megatron-deepgemm-forward-layers", kList, kGpuPath),
      accepted("--megatron-deepgemm-forward-modules", kList, kGpuPath),
      accepted("--megatron-deepgemm-moe-forward-layers", kList, kGpuPath),
      accepted("--megatron-deepgemm-moe-forward-modules", kList, kGpuPath),
      accepted("--moe-grouped-gemm", kSwitch, kGpuPath),
      accepted("--moe-permute-fusion", kSwitch, kGpuPath),
      accepted("--moe-router-dtype", kValue, "router scores are float32"),
      accepted("--moe-token-dispatcher-type", kValue, kOneDispatcher),
      accepted("--moe-enable-deepep", kSwitch, kOneDispatcher),
      accepted("--moe-token-drop-policy", kValue, "no token is dropped"),
      works(
          "--enable-mtp-training", &C::enable_mtp_training,
          "train the model's layer for multi-token prediction on the samples too, so that it goes "
          "on foretelling what the policy draws; the policy's gradient stays the same "
          "(docs/speculation.md)")
          .when(kTraining),
      works("--mtp-loss-scaling-factor", &C::mtp_loss_scaling_factor,
            "what the mean of its negative log-probs counts beside the policy's loss")
          .with("--enable-mtp-training"),
  };
  for (FlagRow& flag : flags_read_from_config()) flags.push_back(std::move(flag));
  return flags;
}

std::vector<FlagRow> parallel_flags() {
  constexpr std::string_view kOptimizerStays =
      "weights are shared and the optimizer stays; --offload-rollout is about the rest";
  return {
      works("--tensor-model-parallel-size", &C::tensor_model_parallel_size,
            "tensor parallelism: ranks that share the heads, feed-forward width and "
            "vocabulary of each layer, which the size must divide"),
      works("--pipeline-model-parallel-size", &C::pipeline_model_parallel_size,
            "stages of layers; micro-batches go through them one forward, one backward"),
      works("--context-parallel-size", &C::context_parallel_size,
            "context parallelism: ranks that share the rows of each micro-batch; rank "
            "r has pieces r and 2 x size - 1 - r of each segment"),
      works("--expert-model-parallel-size", &C::expert_model_parallel_size,
            "ranks among which the experts of each layer are divided; tokens travel to them and "
            "back"),
      works("--expert-tensor-parallel-size", &C::expert_tensor_parallel_size,
            "ranks that cut the width of each expert between them; --tensor-model-parallel-size "
            "without it")
          .with("a model with experts"),
      works("--actor-num-nodes", &C::actor_num_nodes,
            "hosts whose devices train; the command is started on each of them, or through Ray "
            "(docs/cluster.md)")
          .when(kAnyRun),
      works("--launcher", &C::launcher,
            "who starts the processes of several hosts: environment (torchrun, srun, mpirun, "
            "Kubernetes: "
            "what is recognised), ray, local, or auto: Ray where RAY_ADDRESS is set, else the "
            "environment")
          .when(kAnyRun),
      works("--nodes-timeout-seconds", &C::nodes_timeout_seconds,
            "until all hosts of a run are there, or a lost one is back")
          .with("several hosts"),
      works("--actor-num-gpus-per-node", &C::actor_num_gpus_per_node,
            "ranks that train, each a process with a share of the cores; data-parallel but for the "
            "sizes above")
          .when(kAnyRun),
      works("--decoder-first-pipeline-num-layers", &C::decoder_first_pipeline_num_layers,
            "layers of the first pipeline stage"),
      works("--decoder-last-pipeline-num-layers", &C::decoder_last_pipeline_num_layers,
            "layers of the last pipeline stage"),
      works("--num-virtual-stages-per-pipeline-rank", &C::num_virtual_stages_per_pipeline_rank,
            "ranges of layers of each pipeline stage (interleaved schedule)"),
      works("--allgather-cp", &C::allgather_cp,
            "context-parallel ranks have runs of a micro-batch's rows, not pieces of each segment")
          .with("--context-parallel-size above 1"),
      works("--sequence-parallel", &C::sequence_parallel,
            "tensor-parallel ranks hold the residual stream cut by rows; no effect without them")
          .with("--tensor-model-parallel-size above 1"),
      alias("--offload", {.words = {{"", {{"--offload-rollout", ""}}}}},
            "same as --offload-rollout"),
      works("--offload-rollout", &C::offload_rollout,
            "free the KV cache while training and gradients while generating; on a "
            "GPU this happens automatically if not everything fits at once")
          .when(kSharedDevice),
      works("--no-offload-rollout", &C::no_offload_rollout,
            "keys, values and gradients keep their memory all the time")
          .when(kSharedDevice),
      accepted("--offload-train", kSwitch, kOptimizerStays).where(kOwnWeights, kTwoWeights),
      accepted("--no-offload-train", kSwitch, kOptimizerStays).where(kOwnWeights, kTwoWeights),
      works("--num-gpus-per-node", &C::num_gpus_per_node,
            "places of a host, where there are several; without it those that the first host "
            "shows, on "
            "CPUs --actor-num-gpus-per-node")
          .with("several hosts"),
      accepted("--distributed-backend", kValue,
               "follows from --device: sockets between processes on CPUs, NCCL between GPUs"),
      works("--distributed-timeout-minutes", &C::distributed_timeout_minutes,
            "deadline of a collective: ranks that wait longer for one another end the run")
          .when(kWorkers),
      works("--worker-timeout-seconds", &C::worker_timeout_seconds,
            "silence after which a rank or engine counts as hung")
          .when(kWorkers),
  };
}

}  // namespace slime::config
