# DeepSeek-V2-Lite: latent attention, 64 experts
MODEL_NAME=DeepSeek-V2-Lite-Chat
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-27}"
  --hidden-size 2048
  --ffn-hidden-size 10944
  --num-attention-heads 16
  --vocab-size 102400
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000}"
  --norm-epsilon 1e-6
)
