# Qwen3-30B-A3B: 128 experts, 8 of them for a token
MODEL_NAME=Qwen3-30B-A3B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-48}"
  --hidden-size 2048
  --ffn-hidden-size 6144
  --num-attention-heads 32
  --num-query-groups 4
  --kv-channels 128
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
