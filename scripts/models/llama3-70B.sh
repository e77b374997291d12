# Llama 3 70B
MODEL_NAME=Meta-Llama-3-70B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-80}"
  --hidden-size 8192
  --ffn-hidden-size 28672
  --num-attention-heads 64
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 128256
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-500000}"
  --norm-epsilon 1e-5
)
