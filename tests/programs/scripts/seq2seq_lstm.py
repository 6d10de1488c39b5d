"""A sequence-to-sequence LSTM with teacher forcing; encoder and decoder are taken out of it to decode greedily."""

import keras
import numpy as np
from keras import layers

BATCH = 8
LATENT_DIM, NUM_TOKENS = 8, 7
keras.utils.set_random_seed(13)

rng = np.random.default_rng(0)
encoder_input_data = np.eye(NUM_TOKENS, dtype="float32")[rng.integers(0, NUM_TOKENS, (28, 5))]
decoder_input_data = np.eye(NUM_TOKENS, dtype="float32")[rng.integers(0, NUM_TOKENS, (28, 4))]
decoder_target_data = np.roll(decoder_input_data, -1, axis=1)

encoder_inputs = keras.Input(shape=(None, NUM_TOKENS))
encoder = layers.LSTM(LATENT_DIM, return_state=True)
_, state_h, state_c = encoder(encoder_inputs)
encoder_states = [state_h, state_c]
decoder_inputs = keras.Input(shape=(None, NUM_TOKENS))
decoder_lstm = layers.LSTM(LATENT_DIM, return_sequences=True, return_state=True)
decoder_outputs, _, _ = decoder_lstm(decoder_inputs, initial_state=encoder_states)
decoder_dense = layers.Dense(NUM_TOKENS, activation="softmax")
model = keras.Model([encoder_inputs, decoder_inputs], decoder_dense(decoder_outputs))
model.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])

encoder_model = keras.Model(encoder_inputs, encoder_states)
state_inputs = [keras.Input(shape=(LATENT_DIM,)), keras.Input(shape=(LATENT_DIM,))]
decoder_outputs, state_h, state_c = decoder_lstm(decoder_inputs, initial_state=state_inputs)
decoder_model = keras.Model([decoder_inputs, *state_inputs], [decoder_dense(decoder_outputs), state_h, state_c])

history = model.fit(
    [encoder_input_data, decoder_input_data],
    decoder_target_data,
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
    validation_split=0.2,
)


def decode_sequence(input_seq):
    states_value = encoder_model.predict(input_seq, verbose=0)
    target_seq = np.zeros((1, 1, NUM_TOKENS))
    target_seq[0, 0, 0] = 1.0
    decoded = []
    for _ in range(4):
        output_tokens, *states_value = decoder_model.predict([target_seq, *states_value], verbose=0)
        decoded.append(output_tokens[0, -1])
        target_seq = np.eye(NUM_TOKENS)[[[np.argmax(output_tokens[0, -1])]]]
    return np.stack(decoded)


state = encoder_model.predict(encoder_input_data[:3])
sentence = decode_sequence(encoder_input_data[:1])
