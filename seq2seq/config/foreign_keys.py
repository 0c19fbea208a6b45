"""Names that other tools give to our keys: Joey NMT, OpenNMT, fairseq, Sockeye, Marian, Nematus,
Hugging Face, tensor2tensor and Lightning, in lower case with underscores.

An entry `section.name` holds within one section only and takes precedence over `name`.
"""

_KEYS = {
    "name": "run_name model_name experiment_name exp_name project_name job_name experiment",
    "run_dir": """
        output_dir model_dir save_dir out_dir work_dir workdir log_dir logging_dir
        exp_dir checkpoint_dir ckpt_dir save_path save_model saveto save_to output_folder
        output_path default_root_dir experiment_dir train_dir""",
    "seed": "random_seed rng_seed manual_seed data_seed pytorch_seed",
    "data.src_lang": "source_lang source_language lang_src src_language source_locale",
    "data.tgt_lang": "target_lang target_language lang_tgt tgt_language target_locale trg_lang",
    "data.train": """
        train_set train_sets training_set training_data train_data trainpref train_path
        train_file train_files data.training""",
    "data.train.src": "train_src src_train train_source train_source_file source_train path_src",
    "data.train.tgt": "train_tgt tgt_train train_trg train_target train_target_file path_tgt",
    "data.valid": """
        dev val validation dev_set dev_data dev_path dev_file valid_set valid_sets valid_data
        validpref validation_data validation_set validation_file val_data eval_data eval_file""",
    "data.valid.src": """
        valid_src src_valid valid_source validation_source dev_src val_src dev_source""",
    "data.valid.tgt": "valid_tgt tgt_valid valid_target validation_target dev_tgt val_tgt dev_trg",
    "data.test": "test_set test_sets test_data test_path test_file testpref",
    "data.test.src": "test_src src_test test_source",
    "data.test.tgt": "test_tgt tgt_test test_target test_trg",
    "data.embeddings": """
        pretrained_embeddings pretrained_vectors embedding_vectors load_pretrained
        pre_word_vecs word_vectors both_embeddings embeddings_file glove fasttext word2vec""",
    "data.embeddings.src": "src_embeddings pre_word_vecs_enc encoder_embed_path",
    "data.embeddings.tgt": "tgt_embeddings pre_word_vecs_dec decoder_embed_path",
    "data.max_length": """
        max_len max_sent_length max_sentence_length max_seq_len max_seq_length
        max_sequence_length src_seq_length tgt_seq_length src_seq_length_trunc max_source_length
        max_target_length max_source_positions max_target_positions max_positions
        max_train_length maxlen""",
    "vocabulary.type": """
        tokenizer tokenizer_type tokenization segmentation subword subword_type src_subword_type
        tgt_subword_type token_type token_level level bpe sentencepiece spm vocab_type
        vocabulary.model_type vocabulary.algorithm vocabulary.method""",
    "vocabulary.size": """
        vocab_size vocabulary_size src_vocab_size tgt_vocab_size voc_limit src_voc_limit
        trg_voc_limit vocab_limit voc_size n_vocab nwordssrc nwordstgt dim_vocabs max_vocab_size
        num_words bpe_size num_merges bpe_merges bpe_operations vocab_max_size target_vocab_size
        src_words_max tgt_words_max n_words n_words_src""",
    "vocabulary.joint": """
        joined_dictionary share_vocab shared_vocab share_vocabulary shared_vocabulary
        joint_vocab joint_vocabulary joined_vocab share_dict joint_bpe joint_dictionary shared""",
    "vocabulary.sampling": """
        bpe_dropout subword_sampling subword_regularization subword_regularisation subword_alpha
        src_subword_alpha tgt_subword_alpha sentencepiece_alphas enable_sampling spm_alpha
        vocabulary.alpha vocabulary.dropout""",
    "vocabulary.model": """
        bpe_model sentencepiece_model spm_model sp_model src_subword_model tgt_subword_model
        sentencepiece_vocab spm_vocab tokenizer_model subword_model""",
    "vocabulary.symbols": """
        user_defined_symbols special_symbols special_tokens extra_special_tokens extra_tokens
        additional_special_tokens protected_symbols spm_user_defined_symbols added_tokens""",
    "vocabulary.names": """
        name_placeholders placeholders mask_names named_entities entity_masking
        transliterate_names invented_names augmentation data_augmentation name_augmentation
        augment_names""",
    "model.decoder": """
        attention_architecture
        model_type architecture arch network decoder_type dec_type rnn_decoder model.type
        model.name model.arch""",
    "model.score": """
        attention attn attention_type attn_type att_type attention_score attention_function
        attention_mechanism attention_model attn_model attention_method attn_method
        score_function score_fn score_type global_attention rnn_attention_type
        alignment_function model.scoring attention_heads heads num_heads n_heads nheads
        n_head nhead attn_heads num_attention_heads transformer_heads
        encoder_attention_heads decoder_attention_heads rnn_attention_mhdot_heads""",
    "model.input_feeding": """
        input_feed decoder_input_feed feed_input attention_feeding rnn_input_feed""",
    "model.window": """
        local_attention attention_window window_type attn_window window_width window_size
        attention_window_size attn_window_size""",
    "model.embedding_size": """
        embedding_dim emb_size embed_size embed_dim emb_dim word_vec_size src_word_vec_size
        tgt_word_vec_size encoder_embed_dim decoder_embed_dim dim_emb dim_word d_emb d_embed
        num_embed num_embed_source num_embed_target embedding_dimension embeddings_size embed""",
    "model.hidden_size": """
        rnn_size hidden hidden_dim hidden_dims hidden_units hid_size hid_dim n_hid nhid n_hidden
        num_hidden rnn_num_hidden enc_rnn_size dec_rnn_size encoder_hidden_size
        decoder_hidden_size encoder_hidden_dim enc_hid_dim dec_hid_dim enc_hidden_size
        dec_hidden_size dim_rnn rnn_dim rnn_hidden_size lstm_size lstm_hidden_size num_units
        units d_model model_dim state_size hidden_layer_size model.dim model.size""",
    "model.attention_size": """
        attention_dim attn_dim attn_size attention_hidden_size attn_hidden_size attention_units
        rnn_attention_num_hidden att_dim att_size dim_att""",
    "model.layers": """
        num_layers encoder_layers decoder_layers enc_layers num_encoder_layers enc_depth
        n_encoder_layers dec_layers num_decoder_layers dec_depth n_decoder_layers n_layers
        nlayers n_layer depth num_hidden_layers rnn_num_layers rnn_layers lstm_layers
        num_rnn_layers residual residual_connections use_residual residual_connection
        skip_connections skip residuals enc_cell_residual dec_skip enc_skip
        rnn_residual_connections""",
    "model.encoder": """
        bidirectional reverse_source reverse_input reverse_src reverse_encoder
        rnn_encoder_reverse_input brnn bidir bi_rnn birnn encoder_type enc_type
        encoder_bidirectional bidirectional_encoder bilstm rnn_bidirectional""",
    "model.cell": """
        rnn_type cell_type rnn_cell rnn_cell_type enc_cell dec_cell unit_type use_gru
        use_lstm recurrent_unit rnn_unit decoder_rnn_type encoder_rnn_type layer_norm
        layer_normalization layer_normalisation layernorm use_layer_norm use_layernorm ln
        lstm_layer_norm rnn_layer_normalization""",
    "model.maxout": "maxout_output use_maxout deep_output",
    "model.dropout": """
        dropout_rate dropout_prob dropout_p drop_prob dropout_rnn rnn_dropout emb_dropout
        embed_dropout embedding_dropout hidden_dropout hidden_dropout_prob encoder_dropout
        decoder_dropout encoder_dropout_in encoder_dropout_out decoder_dropout_in
        decoder_dropout_out attention_dropout attn_dropout dropout_src dropout_trg
        variational_dropout rnn_dropout_inputs rnn_dropout_states activation_dropout
        dropout_hidden dropout_embedding dropout_source dropout_target word_dropout
        token_dropout src_word_dropout tgt_word_dropout rnn_decoder_hidden_dropout""",
    "model.copy": """
        copy_attn copy_attention use_copy copy_mechanism copynet pointer pointer_gen
        pointer_generator pointer_network use_pointer reuse_copy_attn copying""",
    "model.tie_embeddings": """
        tied_embeddings tied_embeddings_all tied_embeddings_src tied_softmax tie_word_embeddings
        tie_weights weight_tying weight_tying_type share_embeddings share_decoder_embeddings
        share_all_embeddings share_decoder_input_output_embed shared_embeddings share_embedding""",
    "data.train.alignment": "alignments train_align load_alignments path_align align",
    "training.max_epochs": """
        epoch epochs num_epochs n_epochs nepochs max_epoch max_num_epochs num_train_epochs
        after_epochs train_epochs""",
    "training.max_steps": """
        steps train_steps num_steps n_steps training_steps num_train_steps max_update
        max_updates updates iterations max_iterations max_iter num_iterations iters after
        after_batches finish_after total_num_update total_steps num_training_steps""",
    "training.max_minutes": """
        max_time time_limit max_seconds max_hours stop_time_hours max_training_time
        max_train_time""",
    "training.batch_workers": "num_workers dataloader_num_workers n_workers data_workers",
    "training.optimizer": """
        optim optimiser optimizer_type optimizer_name optim_type opt weight_decay wd l2
        l2_reg l2_penalty weight_decay_rate regularization decay_c""",
    "training.learning_rate": """
        lr learn_rate learningrate lrate base_lr peak_lr max_lr init_lr initial_lr eta
        initial_learning_rate base_learning_rate peak_learning_rate learning_rate_init""",
    "training.warmup_steps": """
        warmup warm_up warmup_updates num_warmup_steps lr_warmup lr_warmup_steps warmup_ratio
        learning_rate_warmup learning_rate_warmup_steps warmup_epochs warmup_init_lr""",
    "training.decay": """
        scheduler lr_scheduler lr_scheduler_type lr_schedule lr_policy scheduling schedule
        scheduler_type decay_method lr_decay lr_decay_inv_sqrt lr_decay_strategy
        learning_rate_decay learning_rate_decay_method learning_rate_schedule decay_steps
        learning_rate_scheduling learning_rate_scheduler_type start_decay_steps
        learning_rate_decay_steps decay_factor lr_shrink decrease_factor
        learning_rate_reduce_factor lr_factor reduce_factor lr_decay_factor plateau_factor""",
    "training.clip_norm": """
        clip grad_clip clip_grad clip_grad_norm clip_gradient clip_gradients clip_c max_norm
        max_grad_norm grad_norm gradient_clip gradient_clipping gradient_clip_val
        gradient_clipping_threshold clip_threshold clip_value clipping""",
    "training.label_smoothing": "smoothing smooth label_smoothing_factor label_smoothing_eps",
    "training.losses": """
        consistency rdrop r_drop reg_alpha rdrop_alpha r_drop_alpha rdrop_weight
        coverage_loss lambda_coverage cov_loss_wt coverage_weight coverage_loss_weight
        extra_losses auxiliary_losses guided_alignment guided_alignment_weight lambda_align
        alignment_weight alignment_loss_weight guided_alignment_cost full_context_alignment""",
    "training.batch_tokens": """
        batch_size batchsize bsz batch batch_type batch_words mini_batch minibatch
        minibatch_size mini_batch_size mini_batch_words mini_batch_fit train_batch_size
        max_tokens max_sentences per_device_train_batch_size tokens_per_batch
        max_tokens_per_batch batch_max_tokens token_batch_size batch_size_tokens accumulate
        accum_count accum_steps accum_freq update_freq update_interval optimizer_delay
        batch_multiplier gradient_accumulation gradient_accumulation_steps
        accumulation_steps grad_accum grad_accumulation accumulate_grad_batches""",
    "training.average": """
        ema ema_decay use_ema exponential_smoothing average_decay average_every moving_average
        moving_average_decay store_ema""",
    "training.validate_every": """
        valid_steps valid_freq valid_every valid_interval validation_freq validation_steps
        validation_interval validate_interval validate_interval_updates eval_every eval_steps
        eval_freq eval_interval eval_strategy evaluation_strategy val_check_interval val_every
        save_steps save_freq save_interval save_interval_updates save_strategy
        save_checkpoint_steps""",
    "training.save_every": """
        save_minutes save_every_minutes checkpoint_minutes checkpoint_interval checkpoint_every""",
    "training.keep": """
        keep_checkpoint keep_checkpoints keep_last keep_last_ckpts keep_last_epochs
        keep_last_params keep_best keep_best_ckpts keep_best_checkpoints keep_interval_updates
        max_to_keep save_total_limit num_checkpoints""",
    "training.metric": """
        eval_metric eval_metrics early_stopping_metric metric_for_best_model
        best_checkpoint_metric optimized_metric valid_metric valid_metrics eval_bleu
        stop_criterion early_stopping_criteria monitor min_improvement
        early_stopping_threshold min_delta early_stopping_min_delta improvement_threshold
        early_stopping_epsilon""",
    "training.patience": """
        learning_rate_reduce_num_not_improved
        early_stopping early_stop early_stopping_patience max_num_checkpoint_not_improved
        early_stopping_rounds stop_patience lr_patience early_stopping_steps""",
    "training.precision": """
        fp16 bf16 fp32 float16 bfloat16 half half_precision mixed_precision amp use_amp use_fp16
        use_bf16 dtype model_dtype torch_dtype apex_amp autocast""",
    "training.log_every": """
        report_every print_every disp_freq display_freq print_freq log_freq log_steps
        log_interval logging_freq logging_steps logging_interval log_every_n_steps""",
    "training.scheduled_sampling": """
        teacher_forcing teacher_forcing_ratio teacher_forcing_prob teacher_forcing_rate
        tf_ratio teacher_force scheduled_sampling_decay scheduled_sampling_mode
        sampling_schedule scheduled_sampling_steps scheduled_sampling_k""",
    "decoding.beam_size": "beam beams num_beams beam_width beam_search generation_num_beams",
    "decoding.length_penalty": """
        alpha beam_alpha lenpen len_penalty length_penalty_alpha length_alpha length_norm
        normalize length_normalization length_normalisation lp_alpha word_penalty""",
    "decoding.coverage_penalty": "beta cov_penalty coverage_beta stepwise_penalty",
    "decoding.no_repeat_ngram": "no_repeat_ngram_size block_ngram_repeat ngram_block block_ngram",
    "decoding.repetition_penalty": "repeat_penalty rep_penalty",
    "decoding.min_length": "min_len min_output_length min_decode_length min_new_tokens",
    "decoding.replace_unknown": "replace_unk replace_unks unk_replace unk_replacement",
    "decoding.max_length": """
        max_output_length max_output_len max_len_a max_len_b max_decode_length
        max_decoding_length generation_max_length max_new_tokens max_gen_length
        max_length_factor max_translation_length decoding.max_len""",
}

_ADVICE = {
    "data.src_lang and data.tgt_lang name the languages, data.train, valid and test the files": """
        src tgt trg source target""",
    "choose the device by the option --device": """
        device devices device_ids gpu gpus gpu_id gpu_ids cuda use_cuda no_cuda use_gpu cpu
        use_cpu cuda_device accelerator""",
    "start several processes: torchrun --nproc-per-node N -m seq2seq train CONFIG": """
        world_size gpu_ranks num_gpus n_gpu n_gpus num_devices num_nodes local_rank ddp_backend
        distributed_world_size distributed multi_gpu strategy""",
    "set the environment variable SEQ2SEQ_DETERMINISTIC=1": """
        deterministic cudnn_deterministic full_determinism use_deterministic_algorithms
        cudnn_benchmark reproducible determinism""",
    "set the environment variable OMP_NUM_THREADS": "num_threads cpu_threads threads n_threads",
    "loading data needs no settings; remove it": """
        pin_memory prefetch_factor
        maxi_batch bucket_size pool_factor""",
    "resume by the option --resume": """
        resume resume_from resume_from_checkpoint continue_training restore_file auto_resume
        resume_training""",
    "start from another run by the option --init-from RUN": """
        load_model load_checkpoint train_from pretrained pretrained_model finetune_from_model
        init_from init_from_checkpoint init_checkpoint model_name_or_path params reload_from""",
    "replace a run by the option --overwrite": "overwrite overwrite_output_dir force_overwrite",
    "it belongs to Transformers, and this model is recurrent; remove it": """
        ff_size ffn_dim transformer_ff dim_feedforward intermediate_size transformer_dim_ffn
        encoder_ffn_embed_dim decoder_ffn_embed_dim transformer_feed_forward_num_hidden
        position_encoding max_position_embeddings max_relative_positions activation_fn
        encoder_normalize_before decoder_normalize_before transformer_model_size""",
    "every epoch shuffles the training pairs; remove it": "shuffle no_shuffle shuffle_data",
    "a batch that does not fit memory is split into micro-batches by itself; remove it": """
        memory_gb workspace max_memory memory_limit gpu_memory gpu_mem max_memory_gb""",
    "special tokens are fixed; remove it": """
        unk_token bos_token eos_token pad_token unk_symbol pad_symbol bos_symbol eos_symbol
        pad_token_id bos_token_id eos_token_id unk_id pad_id bos_id eos_id
        decoder_start_token_id sos_token""",
    "Adam's betas are 0.9 and 0.999, its epsilon is 1e-8; remove it": """
        adam_beta1 adam_beta2 adam_betas adam_epsilon adam_eps betas beta1 beta2 epsilon eps
        optimizer_params optimizer_betas training.beta""",
    "sgd has no momentum; remove it, or set training.optimizer to adam": "momentum nesterov",
    "the initial weights follow from seed alone; remove it": """
        initializer embed_initializer bias_initializer init_weight init_gain init_scale
        param_init param_init_glorot weight_init weight_init_scale weight_init_type
        initializer_range embed_init_gain""",
    "the loss is label-smoothed cross-entropy per target token; see training.label_smoothing": """
        loss loss_type criterion normalization loss_normalization cost_type loss_function
        sentence_avg normalize_loss""",
    "validation selects the best weights by itself; remove it": """
        load_best_model_at_end maximize_best_checkpoint_metric greater_is_better""",
    "the vocabulary is trained from the training text; set vocabulary.type and size": """
        vocab vocabs vocab_file vocab_path src_vocab tgt_vocab source_vocab target_vocab srcdict
        tgtdict dictionary dictionaries min_freq vocab_min_freq voc_min_freq src_voc_min_freq
        trg_voc_min_freq words_min_frequency src_words_min_frequency thresholdsrc thresholdtgt
        num_words_min_count word_min_count vocab_threshold""",
    "SentencePiece segments the raw text; remove it, and see vocabulary.type": """
        bpe_codes codes moses pretokenizer tokenizer_cfg tokenizer_name transforms""",
    "case is kept; lowercase the text files themselves": """
        lower lowercase do_lower_case lower_case truecase""",
    "run_dir holds the log, metrics and TensorBoard files; remove it": """
        report_to tensorboard tensorboard_log_dir tensorboard_logdir use_tensorboard wandb
        wandb_project log_file log_level logger""",
    "only `seq2seq translate` has a batch size: the option --batch-size": """
        decoding.batch_size eval_batch_size valid_batch_size batch_size_valid valid_mini_batch
        per_device_eval_batch_size test_batch_size decoding.batch_type val_batch_size""",
    "give it to `seq2seq translate`: the option --n-best N": "n_best nbest num_return_sequences",
    "sampling is chosen for each call: `seq2seq translate --sample N`, --temperature, --top-k": """
        temperature top_k top_p do_sample sampling_topk sampling_topp random_sampling_topk
        random_sampling_temp sample output_sampling decoding.sampling""",
    "the keys of model hold for encoder and decoder alike; write them there": """
        model.embeddings model.encoder_decoder encoder.embeddings""",
    "all weights are trained, also embeddings from data.embeddings; remove it": """
        freeze freeze_encoder freeze_embeddings freeze_word_vecs_enc freeze_word_vecs_dec
        fixed_param_names""",
}

_SECTIONS = {
    "data": "dataset datasets corpus corpora dataset_config",
    "vocabulary": "vocab vocabularies tokenizer tokenization subword preprocessing segmentation",
    "model": "network architecture arch encoder decoder seq2seq model_config rnn",
    "training": """
        train trainer optim optimizer optimiser optimization optimisation training_args fit
        hyperparameters hparams scheduler lr_scheduler criterion checkpoint checkpoints""",
    "decoding": "testing test search inference generation translate translation decode beam_search",
}

SPLIT_KEYS = {"source": "src", "target": "tgt", "trg": "tgt"}  # within data.train, valid and test


def _inverse(table: dict[str, str]) -> dict[str, str]:
    return {name: ours for ours, names in table.items() for name in names.split()}


KEYS = _inverse(_KEYS)  # name elsewhere -> our key
ADVICE = _inverse(_ADVICE)  # name elsewhere -> what to do here instead
SECTIONS = _inverse(_SECTIONS)  # name of a section elsewhere -> our section
# Names of several meanings, which hold at the top level and in the section of our key alone.
_AMBIGUOUS = """
    alpha beta normalize level shared depth units half after schedule smooth smoothing steps bpe
    opt eta hidden embed clip clipping batch updates regularization attention_window"""
AMBIGUOUS = frozenset(_AMBIGUOUS.split())
