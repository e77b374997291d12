# The first 20 layers of DeepSeek-V3, for trying things out
MODEL_NAME=DeepSeek-V3-20layer
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-20}"
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 128
  --vocab-size 129280
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000}"
  --norm-epsilon 1e-6
)
