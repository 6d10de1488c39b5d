"""Knowledge distillation: compute_loss is overridden, a frozen teacher, two losses of which compile knows one."""

import keras
from keras import layers, ops
from sklearn.datasets import load_digits

BATCH = 12
WORKERS = True
keras.utils.set_random_seed(7)


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1), ops.softmax(y_pred / self.temperature, axis=1)
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


teacher = keras.Sequential([keras.Input((64,)), layers.Dense(32, activation="tanh"), layers.Dense(10)], name="teacher")
student = keras.Sequential([keras.Input((64,)), layers.Dense(8, activation="tanh"), layers.Dense(10)], name="student")

digits, labels = load_digits(return_X_y=True)
x_train, y_train = (digits[:44] / 16.0).astype("float32"), labels[:44]
teacher.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
)
teacher_history = teacher.fit(x_train, y_train, epochs=2, batch_size=BATCH, shuffle=False)
teacher.trainable = False

distiller = Distiller(student=student, teacher=teacher)
distiller.compile(
    optimizer=keras.optimizers.SGD(0.1),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
    student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    distillation_loss_fn=keras.losses.KLDivergence(),
)
history = distiller.fit(x_train, y_train, epochs=2, batch_size=BATCH, shuffle=False)
results = distiller.evaluate(x_train, y_train, batch_size=BATCH, return_dict=True)
