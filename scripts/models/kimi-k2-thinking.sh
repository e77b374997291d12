# Kimi-K2-Thinking
MODEL_NAME=Kimi-K2-Thinking
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-61}"
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 64
  --vocab-size 163840
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-50000}"
  --norm-epsilon 1e-5
)
