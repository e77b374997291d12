# Qwen3-Next-80B-A3B: gated delta nets, 512 experts
MODEL_NAME=Qwen3-Next-80B-A3B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-48}"
  --hidden-size 2048
  --ffn-hidden-size 5120
  --num-attention-heads 16
  --num-query-groups 2
  --kv-channels 256
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000000}"
  --norm-epsilon 1e-6
)
