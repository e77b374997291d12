#include "config/megatron_arguments.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "config/flag_rows.h"
#include "core/nearest_name.h"

namespace slime::config {
namespace {

/// Names with the same reason. "name" is a switch, "name=" has a value, "name+" several.
struct Reason {
  FlagStatus status;
  std::string_view why;
  std::string_view names;
};

using enum FlagStatus;

// One file because it is one table: 839 arguments of August 2026, less those of the flag table.
constexpr Reason kReasons[] = {
    {kRefused, "use --bf16, or --rollout-precision fp8 for generation",
     "disable-fp8-wgrad first-last-layers-bf16 fp4-format= fp4-param-gather "
     "fp4-quantizer-factory= fp4-recipe= fp8-amax-compute-algo= fp8-amax-history-len= "
     "fp8-interval= fp8-margin= fp8-output-proj fp8-quantizer-factory= "
     "keep-fp8-transpose-cache no-fp8-wgrad num-layers-at-end-in-bf16= "
     "num-layers-at-start-in-bf16= reuse-grad-buf-for-mxfp8-param-ag te-precision-config-file="},
    {kRefused, "leave it out: the optimizer is Adam with decoupled weight decay",
     "apply-wd-to-qk-layernorm lion-beta1= lion-beta2= muon-coefficient-type= "
     "muon-extra-scale-factor= muon-fp32-matmul-prec= muon-momentum= muon-nesterov "
     "muon-no-split-qkv muon-num-ns-steps= muon-scalar-optimizer= muon-scale-mode= "
     "muon-tp-mode= muon-use-syrk no-weight-decay-cond-type= optimizer-cuda-graph "
     "sgd-momentum="},
    {kRefused, "use --weight-decay, which is constant", "end-weight-decay= start-weight-decay="},
    {kRefused, "use --lr and --min-lr, which hold for all weights",
     "decoupled-lr= decoupled-min-lr= head-lr-mult="},
    {kRefused, "use --lr-decay-iters, --lr-wsd-decay-iters and --lr-warmup-iters",
     "lr-decay-samples= lr-warmup-samples= lr-wsd-decay-samples= warmup="},
    {kRefused, "use --global-batch-size, which is constant",
     "decrease-batch-size-if-needed rampup-batch-size+ step-batch-size-schedule="},
    {kRefused, "use --num-rollout", "iterations-to-skip+ train-samples="},
    {kRefused, "use --only-train-params-name-list or --freeze-params-name-list",
     "freeze-all-layers"},
    {kRefused, "use --decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers",
     "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split "
     "pipeline-model-parallel-layout="},
    {kRefused, "use --num-virtual-stages-per-pipeline-rank",
     "num-layers-per-virtual-pipeline-stage="},
    {kRefused, "use --tensor-model-parallel-size", "model-parallel-size="},
    {kRefused, "use --context-parallel-size",
     "hierarchical-context-parallel-sizes+ hybrid-context-parallel"},
    {kRefused, "use --save-interval", "non-persistent-save-interval= persistent-save-interval="},
    {kRefused, "use --keep-checkpoints", "save-retain-interval="},
    {kRefused, "use --hf-checkpoint, or --load",
     "load-main-params-from-ckpt pretrained-checkpoint="},
    {kRefused, "use --ckpt-step", "override-ckpt-iteration="},
    {kRefused, "use tools/convert_torch_dist_to_hf.py and tools/convert_hf_to_torch_dist.py",
     "ckpt-convert-format= ckpt-convert-save= ckpt-convert-update-legacy-dist-opt-format"},
    {kRefused, "use --debug-rollout-only", "skip-train"},
    {kRefused, "use --n-samples-per-prompt", "grpo-group-size="},
    {kRefused, "use --rollout-batch-size", "grpo-prompts-per-step="},
    {kRefused, "use --num-steps-per-rollout", "grpo-iterations="},
    {kRefused, "use --eps-clip and --eps-clip-high", "grpo-clamp-eps-lower= grpo-clamp-eps-upper="},
    {kRefused, "use --use-kl-loss and --kl-loss-coef", "grpo-kl-beta="},
    {kRefused, "use --entropy-coef", "grpo-entropy-term-weight="},
    {kRefused, "use --dynamic-sampling-filter-path", "grpo-filter-groups-with-same-reward"},
    {kRefused, "use --rollout-temperature, --rollout-top-p and --rollout-top-k",
     "rl-default-temperature= rl-default-top-k= rl-default-top-p="},
    {kRefused, "use --partial-rollout", "no-rl-partial-rollouts rl-partial-rollouts"},
    {kRefused, "use --use-tis and --tis-clip",
     "no-rl-inference-logprobs-is-correction rl-importance-sampling-truncation-coef= "
     "rl-inference-logprobs-is-correction"},
    {kRefused, "use slime train-async with --max-staleness", "rl-generation-lag="},
    {kRefused,
     "leave it out: `slime train` is reinforcement learning with environments of your own "
     "(docs/plugins.md)",
     "langrl-env-config= perform-rl-step"},
    {kRefused, "use --loss-type sft_loss", "sft"},
    {kRefused, "use --use-opd",
     "logits-load-decode-threads= logits-load-dir= logits-load-ignore-errors "
     "logits-load-kd-loss-alpha= logits-load-msc-prefetch-depth= logits-load-prefetch-factor= "
     "logits-save-dir= logits-save-dtype= logits-save-top-k= logits-save-top-p-min-k= "
     "logits-save-top-p="},
    {kRefused, "leave it out: the model is computed as config.json says",
     "apply-query-key-layer-scaling apply-residual-connection-post-layernorm "
     "enable-mhc-connections heterogeneous-layers-config-encoded-json= "
     "heterogeneous-layers-config-path= mhc-init-gating-factor= mhc-num-residual-streams= "
     "mhc-recompute-layer-num= mhc-sinkhorn-iterations= moe-apply-probs-on-input "
     "moe-latent-size= moe-upcycling-granularity= moe-use-upcycling mtp-detach-heads mtp-hsm "
     "mtp-hybrid-override-pattern= mtp-standalone mtp-use-repeated-layer mup-attn-scale-power= "
     "mup-base-head-dim= mup-base-hidden-size= mup-embedding-mult= mup-output-mult= "
     "mup-width-mult= qk-clip qk-clip-alpha= qk-clip-threshold= use-mup yaml-cfg="},
    {kRefused, "leave it out: every token visits the experts that its router chooses",
     "moe-expert-capacity-factor= moe-expert-rank-capacity-factor= moe-input-jitter-eps= "
     "moe-pad-expert-input-to-capacity moe-router-force-biased= "
     "moe-router-force-load-balancing moe-router-quantile-balancing-ema="},
    {kRefused, "leave it out: weights are those of --hf-checkpoint",
     "data-parallel-random-init embedding-init-method-std= init-method-xavier-uniform"},
    {kRefused, "leave it out: no gradient reaches the indexers",
     "dsa-indexer-loss-coeff= dsa-indexer-use-sparse-loss"},
    {kAccepted, kFromConfig,
     "activation-func-clamp-value= bert-no-binary-head decoder-num-layers= "
     "disable-dsa-indexer-rotate-activation disable-dsa-indexer-scoring-relu "
     "dsa-indexer-head-dim= dsa-indexer-k-norm-epsilon= dsa-indexer-k-norm-fp32 "
     "dsa-indexer-n-heads= dsa-indexer-rope-interleaved dsa-indexer-skip-topk-offset= "
     "dsa-indexer-topk-freq= dsa-indexer-topk= dsa-kernel-backend= encoder-num-layers= "
     "experimental-attention-variant= gdp-num-householder= glu-linear-offset= "
     "hybrid-layer-pattern= hybrid-override-pattern= is-hybrid-model linear-attention-freq= "
     "linear-conv-kernel-dim= linear-key-head-dim= linear-num-key-heads= "
     "linear-num-value-heads= linear-value-head-dim= mamba-head-dim= mamba-num-groups= "
     "mamba-num-heads= mamba-state-dim= mrope-section+ no-dsa-indexer-rotate-activation "
     "no-dsa-indexer-scoring-relu no-rope-freq= no-yarn-correction-range-round-to-int "
     "onnx-safe= openai-gelu qk-l2-norm quick-geglu relative-attention-max-distance= "
     "relative-attention-num-buckets= rope-scaling-factor= rope-type= "
     "rotary-seq-len-interpolation-factor= softmax-type= squared-relu window-attn-skip-freq= "
     "window-size= yarn-beta-fast= yarn-beta-slow= yarn-correction-range-round-to-int "
     "yarn-original-max-position-embeddings="},
    {kAccepted, "the loss is not scaled: gradients are float32",
     "disable-log-loss-scale-to-tensorboard hysteresis= initial-loss-scale= loss-scale-window= "
     "loss-scale= min-loss-scale= no-log-loss-scale-to-tensorboard"},
    {kAccepted, "logits, gradients and the optimizer's state are float32",
     "disable-bf16-reduced-precision-matmul exp-avg-dtype= exp-avg-sq-dtype= "
     "fp16-lm-cross-entropy fp32-residual-connection grad-reduce-in-bf16 main-grads-dtype= "
     "main-params-dtype= mamba-training-ssm-states-dtype= megatron-fsdp-grad-comm-dtype= "
     "megatron-fsdp-main-grads-dtype= megatron-fsdp-main-params-dtype= output-logit-dtype="},
    {kAccepted, "weight decay is constant", "weight-decay-incr-style="},
    {kAccepted, "the flags say the schedule, the checkpoint its position",
     "override-opt-param-scheduler"},
    {kAccepted, "checkpoints have one form, which any layout of ranks reads (docs/resume.md)",
     "async-ckpt-cpu-priority= async-ckpt-io-priority= async-ckpt-use-cpu-shm "
     "auto-detect-ckpt-format ckpt-assume-constant-structure ckpt-drop-redundant-extra-state "
     "ckpt-fully-parallel-load ckpt-fully-parallel-load-exchange-algo= "
     "ckpt-fully-parallel-load-per-rank-objects ckpt-fully-parallel-load-process-group= "
     "ckpt-fully-parallel-save ckpt-fully-parallel-save-process-group= "
     "ckpt-pg-tensors-cache-create ckpt-pg-tensors-cache-path= "
     "disable-ckpt-load-validate-sharding-integrity disable-save-tokenizer-assets "
     "disable-strict-fsdp-dtensor-load disable-use-tokenizer-model-from-checkpoint-args "
     "dist-ckpt-format= dist-ckpt-optim-fully-reshardable dist-ckpt-save-pre-mcore-014 "
     "dist-ckpt-strictness= dist-ckpt-workers= exit-on-missing-checkpoint "
     "no-ckpt-fully-parallel-save no-ckpt-load-validate-sharding-integrity "
     "no-save-tokenizer-assets no-strict-fsdp-dtensor-load "
     "no-use-tokenizer-model-from-checkpoint-args non-persistent-ckpt-type= "
     "non-persistent-global-ckpt-dir= non-persistent-local-ckpt-algo= "
     "non-persistent-local-ckpt-dir= replication replication-factor= replication-jump= "
     "save-activations-interval= save-dgrads-interval= save-params-interval= "
     "save-tokens-per-expert-interval= save-wgrads-interval= use-checkpoint-args use-dist-ckpt "
     "use-mp-args-from-checkpoint-args use-persistent-ckpt-worker verify-integrity"},
    {kAccepted, "it is about Megatron's own data sets; prompts come from --prompt-data",
     "allow-ambiguous-pad-tokens data-args-path= data-cache-path= "
     "dataloader-defer-npy-index-mmap dataloader-fast-cache-load "
     "dataloader-inter-document-masking dataloader-type= decoder-seq-length= "
     "encoder-seq-length= eod-mask-loss fim-data fim-eod-token= fim-fragment-rate= "
     "fim-middle-token= fim-no-prefix= fim-pad-token= fim-prefix-token= fim-rate= "
     "fim-split-sample= fim-spm-rate= fim-suffix-token= mask-prob= mid-level-dataset-surplus= "
     "mock-data no-create-attention-mask-in-dataloader no-mmap-bin-files "
     "num-dataset-builder-threads= num-workers= object-storage-cache-path= "
     "per-dataset-sequences-path= per-split-data-args-path= phase-transition-iterations= "
     "reset-attention-mask reset-position-ids sample-rate= sft-tokenizer-prompt-format= "
     "short-seq-prob= split= test-data-path+ train-data-path+ valid-data-path+"},
    {kAccepted, "the tokenizer is that of --hf-checkpoint",
     "disable-pad-vocab-size disable-tokenizer-sentencepiece-ignore-extra-whitespaces "
     "merge-file= no-pad-vocab-size no-tokenizer-sentencepiece-ignore-extra-whitespaces "
     "null-tokenizer-eod-id= null-tokenizer-pad-id= tiktoken-num-special-tokens= "
     "tiktoken-pattern= tokenizer-hf-no-include-special-tokens tokenizer-hf-no-use-fast "
     "tokenizer-metadata= tokenizer-sentencepiece-legacy tokenizer-special-tokens+ "
     "tokenizer-type= use-gigatoken vocab-extra-ids= vocab-file="},
    {kAccepted, "log and metrics are the program's own (docs/metrics.md)",
     "app-tag-run-name= app-tag-run-version= config-logger-dir= dump-param-to-param-group-map= "
     "inference-logging-step-interval= log-device-memory-used log-energy "
     "log-max-attention-logit log-memory-interval= log-memory-to-tensorboard "
     "log-num-zeros-in-grad log-params-norm log-progress log-throughput "
     "log-timers-to-tensorboard log-validation-ppl-to-tensorboard "
     "log-world-size-to-tensorboard logging-level= memory-snapshot-path= moe-per-layer-logging "
     "moe-routing-trace-capture-hidden-states moe-routing-trace-capture-logits "
     "moe-routing-trace-dump-weights moe-routing-trace-max-training-iters= "
     "moe-routing-trace-path= no-barrier-with-level-1-timing no-one-logger nvtx-ranges "
     "one-logger-async one-logger-project= one-logger-run-name= otel-enabled "
     "otel-service-name= otel-span-groups= pytorch-profiler-collect-callstack "
     "pytorch-profiler-collect-chakra pytorch-profiler-collect-shapes record-shapes "
     "tensorboard-dir= tensorboard-log-interval= tensorboard-queue-size= timing-log-level= "
     "timing-log-option= wandb-exp-name= wandb-save-dir="},
    {kAccepted, "processes are watched by the program itself (--use-fault-tolerance)",
     "adlr-autoresume adlr-autoresume-interval= calc-ft-timeouts check-for-large-grads "
     "check-for-spiky-loss check-weight-hash-across-dp-replicas-interval= "
     "disable-straggler-on-startup enable-ft-package error-injection-rate= "
     "error-injection-type= fault-injector-delay-start-iteration= fault-injector-fault-delay= "
     "fault-injector-fault-probabilities= fault-injector-fault-types= "
     "fault-injector-mtti-seconds= fault-injector-num-ranks= fault-injector-offset-seconds= "
     "fault-injector-ranks= fault-injector-seed= ft-num-warmup-iters= gpu-sniff-test-interval= "
     "inprocess-active-world-size= inprocess-barrier-timeout= inprocess-completion-timeout= "
     "inprocess-empty-cuda-cache inprocess-granularity= inprocess-hard-timeout= "
     "inprocess-heartbeat-interval= inprocess-heartbeat-timeout= inprocess-last-call-wait= "
     "inprocess-max-iterations= inprocess-monitor-process-interval= "
     "inprocess-monitor-thread-interval= inprocess-progress-watchdog-interval= "
     "inprocess-restart inprocess-soft-timeout= inprocess-termination-grace-time= "
     "log-straggler rerun-mode= result-rejected-tracker-filename= "
     "run-workload-inspector-server straggler-ctrlr-port= straggler-minmax-count="},
    {kAccepted, "a run ends after --num-rollout steps, or by a signal",
     "exit-duration-in-mins= exit-interval= exit-signal-handler "
     "exit-signal-handler-for-dataloader exit-signal-handler-for-training exit-signal= "
     "train-sync-interval="},
    {kAccepted, "all of --eval-prompt-data is evaluated",
     "eval-global-batch-size= eval-iters= eval-micro-batch-size= full-validation "
     "multiple-validation-sets start-eval-at-iter= test-mode validation-set-names+"},
    {kAccepted, "there is no Python in the trainer",
     "disable-manual-gc-eval manual-gc manual-gc-interval= no-manual-gc-eval"},
    {kAccepted, "the program fits a step into the memory that there is (docs/gpu.md)",
     "activation-offload-fraction= checkpoint-activations cpu-offloading-num-layers= "
     "cpu-offloading-retain-pinned-cpu-buffers delay-offload-until-cuda-graph "
     "delta-offload-bytes-across-pp-ranks= distribute-saved-activations "
     "empty-unused-memory-level= fine-grained-activation-offloading "
     "fine-grained-offloading-max-inflight-offloads= gdp-num-chunk-states-to-recompute= "
     "max-tokens-to-oom= min-offloaded-tensor-size= mlp-chunks-for-prefill= "
     "mlp-chunks-for-training= moe-layer-recompute moe-paged-stash "
     "moe-paged-stash-buffer-size-factor-cpu= moe-paged-stash-buffer-size-factor-cuda= "
     "moe-paged-stash-page-size= no-pin-cpu-grads no-pin-cpu-params "
     "no-rl-offload-inference-model-weights-when-idle offload-modules+ "
     "optimizer-offload-fraction= recompute-modules+ "
     "rl-offload-inference-model-weights-when-idle rl-offload-optimizer-during-inference "
     "use-torch-optimizer-for-cpu-offload"},
    {kAccepted, "it is about another program of Megatron-LM",
     "bert-embedder-type= bert-load= biencoder-projection-dim= "
     "biencoder-shared-query-context-model block-data-path= cache-mla-latents "
     "classes-fraction= cuda-graph-modules+ cuda-graph-scope+ data-per-class-fraction= "
     "decode-only-cuda-graphs dino-bottleneck-size= dino-freeze-last-layer= "
     "dino-head-hidden-size= dino-local-crops-number= dino-local-img-size= "
     "dino-norm-last-layer dino-teacher-temp= dino-warmup-teacher-temp-epochs= "
     "dino-warmup-teacher-temp= disable-msc embedding-path= enable-chunked-prefill enable-msc "
     "evidence-data-path= flash-decode ict-head-size= ict-load= img-h= img-w= "
     "indexer-batch-size= indexer-log-interval= inference-batch-times-seqlen-threshold= "
     "inference-coordinator-port= inference-cuda-graph-all-prefills "
     "inference-cuda-graph-max-tokens= inference-cuda-graph-scope= "
     "inference-disable-ep-consensus inference-disable-triton-nvls-kernels "
     "inference-dynamic-batching inference-dynamic-batching-async-sched-mode= "
     "inference-dynamic-batching-block-size= inference-dynamic-batching-buffer-size-gb= "
     "inference-dynamic-batching-cuda-graph-mixed-prefill-count= "
     "inference-dynamic-batching-cuda-graph-sizing-distribution= "
     "inference-dynamic-batching-logprobs-mode= inference-dynamic-batching-mamba-memory-ratio= "
     "inference-dynamic-batching-max-requests= inference-dynamic-batching-max-tokens= "
     "inference-dynamic-batching-num-cuda-graphs= "
     "inference-dynamic-batching-paused-buffer-size-gb= "
     "inference-dynamic-batching-prefix-caching "
     "inference-dynamic-batching-prefix-caching-coordinator-policy= "
     "inference-dynamic-batching-prefix-caching-eviction-policy= "
     "inference-dynamic-batching-prefix-caching-mamba-gb= "
     "inference-dynamic-batching-prefix-caching-routing-alpha= "
     "inference-dynamic-batching-sampling-backend= "
     "inference-dynamic-batching-track-generated-token-events "
     "inference-dynamic-batching-track-paused-request-events "
     "inference-dynamic-batching-unified-memory-level= inference-fuse-tp-communication "
     "inference-grouped-gemm-backend= inference-max-requests= inference-max-seq-length= "
     "inference-moe-disable-fused-quant-kernels inference-moe-token-dispatcher-type= "
     "inference-rng-tracker inference-shards= inference-text-gen-server-logging "
     "inference-use-synchronous-zmq-collectives inference-wandb-logging iter-per-epoch= "
     "mamba-inference-conv-states-dtype= mamba-inference-ssm-states-dtype= mask-factor= "
     "mask-type= nccl-all-reduce-for-prefill no-data-sharding "
     "no-inference-disable-ep-consensus no-inference-dynamic-batching-prefix-caching "
     "no-inference-text-gen-server-logging no-inference-use-synchronous-zmq-collectives "
     "no-inference-wandb-logging no-rl-persist-cuda-graphs no-rl-skip-bos-token "
     "no-rl-training-cuda-graphs no-rl-use-sequence-packing no-rl-verify-model-weights-swap "
     "num-channels= num-classes= num-speculative-tokens= output-bert-embeddings patch-dim= "
     "query-in-block-prob= refit-method= retriever-report-topk-accuracies+ "
     "retriever-score-scaling rl-consumption-granularity= rl-durable-rollout-bank "
     "rl-inference-expert-model-parallel-size= rl-inference-expert-tensor-model-parallel-size= "
     "rl-inference-model-unified-memory-level= rl-inference-parsers+ "
     "rl-inference-pipeline-model-parallel-size= rl-inference-tensor-model-parallel-size= "
     "rl-kv-cache-management-mode= rl-max-inflight-requests= rl-persist-cuda-graphs rl-profile "
     "rl-profile-dir= rl-prompts-per-eval= rl-rollout-bank-dir= rl-rollout-bank-max-bytes= "
     "rl-sequence-packing-algo= rl-sequence-packing-max-sequences-per-bin= rl-skip-bos-token "
     "rl-submission-granularity= rl-training-cuda-graphs rl-use-sequence-packing "
     "rl-verify-model-weights-swap swin-backbone-type= titles-data-path= "
     "use-legacy-static-engine use-one-sent-docs use-same-sampling-seed-across-dp-ranks "
     "vision-backbone-type= vision-pretraining vision-pretraining-type="},
    {kAccepted, "how ranks exchange is the program's own",
     "cp-comm-type+ create-all-gather-group data-parallel-sharding-strategy= "
     "ddp-average-in-collective ddp-bucket-size= ddp-num-buckets= "
     "ddp-pad-buckets-for-high-nccl-busbw ddp-param-name-patterns-for-fp32-local-accumulation+ "
     "ddp-reduce-scatter-with-fp32-accumulation defer-embedding-wgrad-compute "
     "delay-wgrad-compute disable-align-grad-reduce disable-flight-recorder-dump-on-timeout "
     "disable-flight-recorder-extra-dump-on-exec disable-flight-recorder-include-only-active "
     "disable-gloo-process-groups disable-jit-fuser disable-symmetric-registration "
     "disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-overlap-ag "
     "disable-tp-comm-overlap-rs disable-tp-comm-split-ag disable-tp-comm-split-rs "
     "distributed-timeout-seconds-after-init= enable-full-sharding-in-hsdp "
     "ep-overlap-early-attn-memory-release expert-tensor-parallel-num-weight-shards= "
     "fake-process-group flight-recorder-dump-path= flight-recorder-include-stack-trace "
     "flight-recorder-trace-buffer-size= fsdp-db-use-persist-buf-on-alloc-fail "
     "fsdp-double-buffer fsdp-manual-registration gtp-expert-remat-nccl-ub gtp-remat-nccl-ub "
     "gtp-remat-opt-in-modules+ gtp-remat-reduce-scatter-with-fp32-accumulation "
     "high-priority-a2a-comm-stream high-priority-stream-groups+ lazy-mpu-init local-rank= "
     "max-seqlen-per-dp-cp-rank= megatron-fsdp-enable-fine-grained-param-gather "
     "megatron-fsdp-max-pool-double-buffer megatron-fsdp-version= "
     "microbatch-group-size-per-virtual-pipeline-stage= moe-combine-bwd-dtype= "
     "moe-deepep-num-sms= moe-dispatch-fwd-dtype= moe-flex-dispatcher-backend= "
     "moe-flex-dispatcher-num-sms= moe-hybridep-num-blocks-permute= "
     "moe-hybridep-num-blocks-unpermute= moe-hybridep-num-sms-preprocessing= "
     "moe-hybridep-num-sms= moe-hybridep-pad-uneven-dispatch-inputs moe-ncclep-zero-copy "
     "moe-permute-fusion-into-hybridep moe-shared-expert-overlap "
     "nccl-communicator-config-path= no-align-grad-reduce no-align-param-gather "
     "no-flight-recorder-dump-on-timeout no-flight-recorder-extra-dump-on-exec "
     "no-flight-recorder-include-only-active no-gradient-reduce-div-fusion "
     "no-overlap-p2p-communication no-tp-comm-bulk-dgrad no-tp-comm-bulk-wgrad "
     "no-tp-comm-overlap-ag no-tp-comm-overlap-rs no-tp-comm-split-ag no-tp-comm-split-rs "
     "no-use-layer-wise-param-layout num-distributed-optimizer-instances= "
     "outer-dp-sharding-strategy= overlap-dispatch-backward-with-experts-wgrad "
     "overlap-grad-reduce overlap-moe-expert-parallel-comm "
     "overlap-p2p-communication-warmup-flush overlap-param-gather "
     "overlap-param-gather-with-optimizer-step pipeline-model-parallel-comm-backend= "
     "sharp-enabled-group= suggested-communication-unit-size= symmetric-ar-type= "
     "tensor-parallel-num-weight-shards= torch-fsdp2-no-reshard-after-forward "
     "tp-comm-bootstrap-backend= tp-comm-overlap tp-comm-overlap-cfg= tp-comm-overlap-rs-dgrad "
     "use-megatron-fsdp use-nccl-ub use-ring-exchange-p2p use-sharp use-torch-fsdp2 "
     "use-tp-pp-dp-mapping wgrad-deferral-limit="},
    {kAccepted, "--use-routing-replay is it here", "moe-enable-routing-replay"},
    {kAccepted, kGpuPath,
     "batch-invariant-backend= batch-invariant-mode cross-entropy-fusion-impl= "
     "cross-entropy-loss-fusion cuda-graph-impl= cuda-graph-warmup-steps= "
     "disable-clone-scatter-output-in-embedding disable-mamba-mem-eff-path enable-cuda-graph "
     "external-cuda-graph flash-attention-version= fused-residual-rmsnorm gdp-cutedsl-kernel "
     "init-model-with-meta-device kitchen-attention-backend= mla-down-proj-fusion "
     "moe-mlp-glu-interleave-size= moe-pad-experts-for-cuda-graph-inference moe-router-fusion "
     "moe-router-padding-for-fp8 moe-router-padding-for-quantization "
     "moe-shared-expert-glu-interleave-size= moe-single-grouped-bias moe-single-grouped-weight "
     "moe-use-grouped-tensor no-bias-dropout-fusion no-bias-gelu-fusion no-bias-swiglu-fusion "
     "no-clone-scatter-output-in-embedding no-initialization no-persist-layer-norm "
     "te-rng-tracker use-cpu-initialization use-flash-attn use-fused-weighted-squared-relu "
     "use-grouped-gemm-for-dense-mlp use-grouped-gemm-for-shared-expert use-kitchen-attention "
     "use-mcore-models use-te-activation-func use-transformer-engine-op-fuser"},
};

std::vector<MegatronArgument> all_arguments() {
  static std::vector<std::string> spelled;  // what the names below are views of
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (std::size_t i = 0; i < std::size(kReasons); ++i) {
    std::string_view rest = kReasons[i].names;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      found.emplace_back(i, rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  spelled.reserve(found.size());
  std::vector<MegatronArgument> all;
  for (const auto& [reason, word] : found) {
    const int takes_values = word.ends_with('=') ? kValue : word.ends_with('+') ? kList : kSwitch;
    spelled.push_back("--" +
                      std::string(word.substr(0, word.size() - (takes_values == kSwitch ? 0 : 1))));
    all.push_back(
        {spelled.back(), takes_values, kReasons[reason].status == kRefused, kReasons[reason].why});
  }
  return all;
}

const std::vector<MegatronArgument>& arguments() {
  static const std::vector<MegatronArgument> kAll = all_arguments();
  return kAll;
}

}  // namespace

std::optional<MegatronArgument> megatron_argument(std::string_view flag) {
  std::string name(flag);
  std::ranges::replace(name, '_', '-');
  const auto found = std::ranges::find(arguments(), name, &MegatronArgument::name);
  return found == arguments().end() ? std::nullopt : std::optional(*found);
}

std::optional<std::string> nearest_megatron_argument(std::string_view flag) {
  std::vector<std::string_view> names;
  for (const MegatronArgument& each : arguments()) names.push_back(each.name);
  const auto nearest = nearest_name(flag, names);
  return nearest ? std::optional(std::string(*nearest)) : std::nullopt;
}

}  // namespace slime::config
