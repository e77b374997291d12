# DeepSeek-V3, V3.1 and R1: latent attention, 256 experts
MODEL_NAME=DeepSeek-R1
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-61}"
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 128
  --vocab-size 129280
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000}"
  --norm-epsilon 1e-6
)
