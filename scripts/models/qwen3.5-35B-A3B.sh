# Qwen3.5-35B-A3B (text): gated delta nets, 256 experts
MODEL_NAME=Qwen3.5-35B-A3B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-40}"
  --hidden-size 2048
  --num-attention-heads 16
  --num-query-groups 2
  --kv-channels 256
  --vocab-size 248320
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000000}"
  --norm-epsilon 1e-6
)
