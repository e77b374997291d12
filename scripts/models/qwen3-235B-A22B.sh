# Qwen3-235B-A22B: 128 experts, 8 of them for a token
MODEL_NAME=Qwen3-235B-A22B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-94}"
  --hidden-size 4096
  --ffn-hidden-size 12288
  --num-attention-heads 64
  --num-query-groups 4
  --kv-channels 128
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
