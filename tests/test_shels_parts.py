"""The terms of SHELS against computations by hand, and the scores against their definitions."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis as scipy_mahalanobis
from sklearn.covariance import ledoit_wolf

from limen.shels import ClassFeatures, InputFormat, NetworkConfig, SHELSNetwork
from limen.shels.augmentation import flip, shift, turn
from limen.shels.deep_statistics import DeepStatistics
from limen.shels.losses import (
    cosine_cross_entropy,
    depth_weights,
    distillation,
    group_sparsity,
    node_activity,
    sever,
    soft_freeze,
)
from limen.shels.network import PRESETS
from limen.shels.scores import (
    DEEP_SCORES,
    SCORES,
    Embedding,
    cosine,
    dot,
    energy,
    knn,
    mahalanobis,
    msp,
    prototype,
    scores_to_try,
)
from limen.shels.training import Data, embedding_of, observe


def network(config=PRESETS["digits"], classes=3, seed=0):
    return SHELSNetwork(config, classes, torch.Generator().manual_seed(seed))


# --- losses ---------------------------------------------------------------------------------------


def test_cosine_cross_entropy_by_hand():
    # Cosines 1 and 0, target the first: -log(e / (e + 1)).
    loss = cosine_cross_entropy(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert float(loss) == pytest.approx(-math.log(math.e / (math.e + 1)), rel=1e-6)


def test_distillation_by_hand():
    """Softmax over the old classes alone: a third one may do what it likes."""
    then, now = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[math.log(1.0), 0.0, 5.0]])
    # (1/4, 3/4) against (1/2, 1/2)
    by_hand = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert distillation(now, then).item() == pytest.approx(by_hand)
    assert distillation(then, then, scale=7.0).item() == pytest.approx(0, abs=1e-7)


def test_depth_weights_are_the_papers():
    sevenths = [1, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]
    assert depth_weights(8) == pytest.approx(sevenths)


def test_group_sparsity_by_hand():
    convolution = torch.zeros(2, 2, 1, 1)
    convolution[:, 0, 0, 0] = torch.tensor([3.0, 4.0])  # input channel 0: norm 5; channel 1: 0
    linear = torch.tensor([[1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])  # columns: 1, 2, 2
    rows = torch.tensor([[0.6, 0.0], [0.8, 3.0]])  # columns: 1, 3
    # Three layers: factors 1, 1, 1 - 1/2.
    assert float(group_sparsity([convolution, linear, rows])) == pytest.approx(5 + 5 + 0.5 * 4)


def test_soft_freeze_by_hand():
    old = [torch.zeros(2, 2, 1, 1), torch.zeros(2, 2)]
    new = [old[0].clone(), torch.tensor([[3.0, 4.0], [6.0, 8.0]])]
    new[0][0, :, 0, 0] = torch.tensor([3.0, 4.0])  # node 0 moved by 5
    new[0][1, 0, 0, 0] = 1.0  # node 1 moved by 1
    old_bias, bias = [torch.zeros(2)], [torch.tensor([-0.5, 2.0])]
    activities = [torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])]  # the second row is new
    # 2 * (5 + 0.5) + 0 * (1 + 2) + 1 * 5 + 0 * 10
    moved = soft_freeze(new, bias, old, old_bias, activities)
    assert float(moved) == pytest.approx(2 * 5.5 + 5)


def test_soft_freeze_has_a_gradient_where_nothing_has_moved():
    weight = torch.ones(2, 3, requires_grad=True)
    soft_freeze([weight], [], [torch.ones(2, 3)], [], [torch.ones(2)]).backward()
    assert weight.grad.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_node_activity_by_hand():
    maps = torch.tensor([[[3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    activities = node_activity([maps, torch.tensor([0.5, 0.0])])
    assert [a.tolist() for a in activities] == [[5, 0], [0.5, 0]]


def test_activity_is_that_of_the_mean_over_all_data_whatever_the_batches():
    net = network()
    rng = np.random.default_rng(0)
    X = rng.random((300, 8, 8)).astype(np.float32)
    fmt = InputFormat.of(X)
    data = Data(fmt.tensor(X), torch.zeros(300, dtype=torch.int64), fmt)
    looked, found = observe(net, data, with_maps=True)
    whole = embedding_of(net, fmt.tensor(X), fmt)
    np.testing.assert_array_equal(looked.features, whole.features)
    np.testing.assert_array_equal(looked.maps, whole.maps)
    assert observe(net, data)[0].maps.shape == (300, 0)
    with torch.no_grad():
        outputs = net.activations(fmt.batch(fmt.tensor(X)))
    first = torch.linalg.vector_norm(outputs[0].mean(dim=0), dim=(1, 2))
    torch.testing.assert_close(found[0], first, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found[-1], outputs[-1].mean(dim=0), rtol=1e-4, atol=1e-6)


def test_severing_cuts_only_from_inactive_into_active():
    weights = [torch.ones(2, 1, 3, 3), torch.ones(2, 4), torch.ones(3, 2)]  # map of 2 per channel
    activities = [torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])]
    sever(weights, activities, map_size=2)
    assert weights[0].min() == 1  # pixels are never cut off
    # Channel 0 is inactive: its two inputs lose their way into the active node 0 only.
    assert weights[1].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    # Node 1 is inactive: the rows of both old classes let go of it, the new one need not.
    assert weights[2].tolist() == [[1, 0], [1, 0], [1, 1]]


def test_after_severing_the_old_classes_do_not_see_what_an_inactive_node_does():
    net = network(NetworkConfig.mlp(5, (8, 6)))
    with torch.no_grad():
        net.linears[0].bias[:3] = -100  # three nodes that never fire
    x = torch.rand(50, 5)
    activities = node_activity([a.mean(dim=0) for a in net.activations(x)])
    assert (activities[0] == 0).sum() >= 3
    sever(net.weights(), [*activities, torch.ones(3)], net.map_size)
    with torch.no_grad():
        active = activities[1] > 0
        before = net.activations(x)[-1][:, active]
        net.linears[0].bias[:3] = 50  # now they do
        torch.testing.assert_close(net.activations(x)[-1][:, active], before)


# --- network --------------------------------------------------------------------------------------


def test_the_mnist_network_is_the_papers():
    net = network(PRESETS["mnist"], classes=5)
    assert [tuple(w.shape) for w in net.weights()] == [
        (32, 1, 3, 3),
        (32, 32, 3, 3),
        (64, 32, 3, 3),
        (64, 64, 3, 3),
        (128, 64, 3, 3),
        (128, 128, 3, 3),
        (256, 1152),
        (5, 256),
    ]
    assert all((b == 0).all() for b in net.biases())
    bound = math.sqrt(6 / (1152 + 256))  # Xavier uniform
    assert net.weights()[6].abs().max() <= bound
    assert net.weights()[6].abs().max() > 0.99 * bound


def test_forward_gives_features_and_cosines():
    net = network()
    f, cosines = net(torch.rand(4, 1, 8, 8))
    assert (f >= 0).all()
    by_hand = (f / f.norm(dim=1, keepdim=True)) @ (net.rows / net.rows.norm(dim=1, keepdim=True)).T
    torch.testing.assert_close(cosines, by_hand)


def test_a_new_row_leaves_the_others():
    net = network()
    before = net.rows.detach().clone()
    net.add_row(torch.Generator().manual_seed(1))
    assert net.rows.shape == (4, 128)
    assert torch.equal(net.rows[:3], before)
    assert net.rows[3].abs().max() <= math.sqrt(6 / (4 + 128))


def test_dropout_acts_only_with_a_generator_and_keeps_the_mean():
    net = network(NetworkConfig((1, 8, 8), ((64,),), (32,), dropout=0.5))
    x = torch.rand(1, 1, 8, 8)
    assert torch.equal(net(x)[0], net(x)[0])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        dropped = [net.activations(x, generator)[-1] for _ in range(3)]
    assert not torch.equal(dropped[0], dropped[1])
    same = net.activations(x, torch.Generator().manual_seed(0))[-1]
    assert torch.equal(same, dropped[0])


def test_images_too_small_for_the_poolings_are_refused():
    with pytest.raises(ValueError, match="4x4 are too small for 3 poolings"):
        network(NetworkConfig((1, 4, 4)))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 100, 64), (4, 5, 9), (3, 224, 224)])
def test_a_network_for_any_shape(shape):
    net = network(NetworkConfig.for_shape(*shape))
    assert net(torch.rand(2, *shape))[1].shape == (2, 3)


# --- scores ---------------------------------------------------------------------------------------

rng = np.random.default_rng(0)
FEATURES = rng.random((7, 4))
ROWS = rng.normal(size=(3, 4))
STORED = ClassFeatures(
    rng.random((60, 4)) + np.repeat(np.eye(3, 4), 20, axis=0), np.repeat(range(3), 20)
)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_gives_a_column_per_class(name):
    scores = SCORES[name](FEATURES, ROWS, STORED)
    assert scores.shape == (7, 3)
    assert np.isfinite(scores).all()
    assert SCORES[name](FEATURES[:0], ROWS, STORED).shape == (0, 3)


def test_dot_and_cosine_by_hand():
    f, rows = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    assert dot(f, rows).tolist() == [[3, 8]]
    assert cosine(f, rows).tolist() == [[0.6, 0.8]]


def test_prototype_is_the_cosine_with_the_class_mean():
    mean = STORED.features[20:40].mean(axis=0)
    expected = FEATURES[0] @ mean / np.linalg.norm(mean) / np.linalg.norm(FEATURES[0])
    assert prototype(FEATURES, ROWS, STORED)[0, 1] == pytest.approx(expected)


def test_mahalanobis_is_scipys():
    means = np.stack([STORED.features[STORED.labels == c].mean(axis=0) for c in range(3)])
    within = STORED.features - means[STORED.labels]
    precision = np.linalg.inv(ledoit_wolf(within, assume_centered=True)[0])
    expected = -(scipy_mahalanobis(FEATURES[2], means[1], precision) ** 2)
    assert mahalanobis(FEATURES, ROWS, STORED)[2, 1] == pytest.approx(expected, rel=1e-4)


def test_mahalanobis_survives_features_that_never_vary():
    stored = ClassFeatures(np.zeros((6, 4)), np.repeat(range(3), 2))
    assert np.isfinite(mahalanobis(FEATURES, ROWS, stored)).all()


def test_knn_by_brute_force():
    def unit(v):
        return v / np.linalg.norm(v)

    cosines = sorted((unit(FEATURES[3]) @ unit(e) for e in STORED.of_class(2)), reverse=True)
    assert knn(FEATURES, ROWS, STORED, k=4)[3, 2] == pytest.approx(cosines[3])
    assert knn(FEATURES, ROWS, STORED, k=99)[3, 2] == pytest.approx(cosines[-1])
    assert knn(FEATURES, ROWS, STORED)[3, 2] == pytest.approx(cosines[2])


def test_energy_of_the_winner_is_the_log_sum_exp():
    logits = FEATURES @ ROWS.T
    scores = energy(FEATURES, ROWS)
    np.testing.assert_allclose(scores.max(axis=1), np.log(np.exp(logits).sum(axis=1)))
    assert (scores.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert np.isfinite(energy(1e4 * FEATURES, ROWS)).all()


def test_msp_sums_to_one():
    np.testing.assert_allclose(msp(1e3 * FEATURES, ROWS).sum(axis=1), 1)


# --- inputs ---------------------------------------------------------------------------------------


def understood(shape, dtype=np.uint8, **options):
    return InputFormat.of(np.ones(shape, dtype), **options)


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((5, 28, 28), np.uint8, "grey images 28x28 (n, H, W), divided by 255"),
        ((5, 1, 28, 28), np.float32, "grey images 28x28 (n, C, H, W), divided by 1"),
        ((5, 32, 30, 3), np.uint8, "colour images 32x30 (n, H, W, C), divided by 255"),
        ((5, 3, 32, 30), np.uint8, "colour images 32x30 (n, C, H, W), divided by 255"),
        ((5, 12), np.float64, "rows of 12 features (n, F), standardised"),
    ],
)
def test_it_says_what_it_understood(shape, dtype, words):
    assert str(understood(shape, dtype)) == words


def test_all_layouts_of_a_picture_give_the_same_batch():
    pictures = np.random.default_rng(0).integers(0, 256, (3, 5, 6, 3), dtype=np.uint8)
    batches = []
    for X in (pictures, np.moveaxis(pictures, 3, 1), pictures / 255):
        fmt = InputFormat.of(X)
        batches.append(fmt.batch(fmt.tensor(X)))
    for batch in batches:
        torch.testing.assert_close(batch, batches[0])
    assert batches[0].shape == (3, 3, 5, 6)


def test_bytes_stay_bytes_and_are_not_copied():
    X = np.zeros((4, 8, 8), np.uint8)
    tensor = InputFormat.of(X).tensor(X)
    X[0, 0, 0] = 7
    assert tensor.dtype == torch.uint8
    assert tensor[0, 0, 0, 0] == 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: understood((3,)), r"X must be feature rows .* got an array of shape \(3,\)"),
        (lambda: understood((2, 3, 5, 3)), "both the second and the last axis"),
        (lambda: understood((2, 7, 5, 9)), "neither the second nor the last axis"),
        (lambda: understood((2, 28, 28), expected=(3, 32, 32)), "takes inputs of shape"),
        (lambda: InputFormat.of(np.array([["a", "b"]])), "must hold numbers"),
        (lambda: InputFormat.of(np.full((2, 3), np.nan)), "6 values that are NaN or inf"),
        (
            lambda: understood((2, 28, 28)).tensor(np.zeros((2, 27, 28), np.uint8)),
            r"X must hold grey images 28x28 .*, as in fit, got an array of shape \(2, 27, 28\)",
        ),
    ],
)
def test_bad_inputs_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_networks_shape_settles_an_open_layout():
    assert understood((2, 3, 5, 3), expected=(3, 3, 5)).layout == "nhwc"


def test_deep_scores_are_the_cosine_with_the_kth_nearest_example():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 160)
    stored = ClassFeatures(rng.random((320, 4)), labels, rng.random((320, 9)))
    points = Embedding(rng.random((7, 4)), rng.random((7, 9)))

    def unit(v):
        return v / np.linalg.norm(v, axis=1, keepdims=True)

    by_maps = unit(points.maps) @ unit(stored.maps).T
    by_features = unit(points.features) @ unit(stored.features).T
    for name, cosines in (("map-knn", by_maps), ("deep-knn", (by_maps + by_features) / 2)):
        found = DEEP_SCORES[name](points, np.zeros((2, 4)), stored)
        for c in range(2):
            fourth = np.sort(cosines[:, labels == c], axis=1)[:, -4]  # a fortieth of 160
            np.testing.assert_allclose(found[:, c], fourth, rtol=1e-6)


def test_maps_are_what_the_last_hidden_layer_is_computed_from():
    generator = torch.Generator().manual_seed(0)
    net = SHELSNetwork(NetworkConfig((1, 8, 8), ((4,), (6,)), (5,)), 2, generator)
    layers = net.activations(torch.rand(3, 1, 8, 8, generator=generator))
    again = torch.relu(net.linears[0](net.maps(layers)))
    torch.testing.assert_close(again, layers[-1])
    flat = SHELSNetwork(NetworkConfig.mlp(7, (6, 5)), 2, generator)
    layers = flat.activations(torch.rand(3, 7, generator=generator))
    torch.testing.assert_close(torch.relu(flat.linears[1](flat.maps(layers))), layers[-1])


def test_augmentations_move_and_mirror_and_nothing_else():
    x = torch.zeros(64, 1, 16, 16)
    x[:, 0, 8, 5] = 1
    flipped = flip(x, torch.Generator().manual_seed(0))
    at = flipped.flatten(2).argmax(dim=2)[:, 0] % 16
    assert set(at.tolist()) == {5, 10}
    places = set()
    for seed in range(40):
        moved = shift(x, torch.Generator().manual_seed(seed))
        assert moved.shape == x.shape
        assert moved.sum() == 64
        place = moved.flatten(2).argmax(dim=2)[:, 0]
        rows, columns = place // 16, place % 16
        assert len(set(rows.tolist())) == len(set(columns.tolist())) == 1
        places.add((int(rows[0]), int(columns[0])))
    assert {row for row, _ in places} == {6, 7, 8, 9, 10}
    assert {column for _, column in places} == {3, 4, 5, 6, 7}


def test_turns_are_by_quarters_and_told_in_the_column():
    x = torch.rand(200, 2, 5, 5)
    turned, columns = turn(x, torch.arange(200) % 3, torch.Generator().manual_seed(0))
    assert torch.equal(columns // 4, torch.arange(200) % 3)
    assert set((columns % 4).tolist()) == {0, 1, 2, 3}
    for before, after, quarters in zip(x, turned, columns % 4, strict=True):
        assert torch.equal(after, torch.rot90(before, int(quarters), (1, 2)))


def test_every_turn_of_a_class_has_a_row_the_upright_ones_among_them():
    net = network(NetworkConfig((1, 8, 8), ((4,),), (5,), turns=4))
    f, cosines = net(torch.rand(6, 1, 8, 8))
    upright = torch.nn.functional.normalize(f) @ torch.nn.functional.normalize(net.rows).T
    torch.testing.assert_close(cosines[:, ::4], upright)
    before, turned = cosines.detach(), net.turned.detach().clone()
    net.add_row(torch.Generator().manual_seed(1))
    assert torch.equal(net.turned[:3], turned)
    torch.testing.assert_close(net.cosines(f)[:, :12], before)
    assert net.cosines(f).shape == (6, 16)


@pytest.mark.parametrize(
    ("shape", "blocks", "turns", "message"),
    [
        ((1, 8, 8), ((4,),), 2, "turns must be 1 or 4, got 2"),
        ((1, 8, 6), ((4,),), 4, "needs square images"),
        ((9,), (), 4, "needs square images"),
    ],
)
def test_turns_need_square_images(shape, blocks, turns, message):
    with pytest.raises(ValueError, match=message):
        NetworkConfig(shape, blocks, (5,), turns=turns)


def test_statistics_taken_in_class_by_class_are_those_of_all_at_once():
    rng = np.random.default_rng(0)
    points = rng.random((90, 6)) + np.repeat(np.eye(3, 6), 30, axis=0)
    labels = np.repeat(range(3), 30)
    grown = DeepStatistics.of(points[:60], labels[:60], size=4).with_class(points[60:])
    placed = points @ grown.basis
    means = np.stack([placed[labels == c].mean(axis=0) for c in range(3)])
    within = placed - means[labels]
    np.testing.assert_allclose(grown.means, means, rtol=1e-6)
    np.testing.assert_allclose(grown.scatter.sum(axis=0), within.T @ within, rtol=1e-5)
    assert grown.count.tolist() == [30, 30, 30]


def test_statistics_without_a_class_are_those_of_one_never_learnt():
    rng = np.random.default_rng(0)
    points, labels = rng.random((80, 6)), np.repeat(range(4), 20)
    two = DeepStatistics.of(points[:40], labels[:40], size=4)
    never = two.with_class(points[60:])
    left_out = two.with_class(points[40:60]).with_class(points[60:]).without(2)
    np.testing.assert_array_equal(left_out.similarity(points), never.similarity(points))


def test_similarity_by_statistics_is_scipys_distance():
    rng = np.random.default_rng(1)
    points, labels = rng.random((80, 5)), np.repeat([0, 1], 40)
    told = DeepStatistics.of(points, labels, size=5)
    covariance = told.scatter.sum(axis=0) / 80
    covariance = 0.95 * covariance + 0.05 * np.trace(covariance) / 5 * np.eye(5)
    found, inverse = told.similarity(points[:4]), np.linalg.inv(covariance)
    for i, c in np.ndindex(4, 2):
        apart = scipy_mahalanobis(points[i] @ told.basis, told.means[c], inverse)
        assert found[i, c] == pytest.approx(-(apart**2), rel=1e-4)


def test_points_that_never_vary_keep_distances_finite():
    points, labels = np.ones((8, 4)), np.repeat([0, 1], 4)
    assert np.isfinite(DeepStatistics.of(points, labels, size=3).similarity(points)).all()


def test_where_no_row_is_trained_no_score_looks_at_rows():
    assert set(scores_to_try("prototype")) == {
        *("prototype", "knn", "map-knn", "deep-knn", "deep-mahalanobis")
    }
    assert set(scores_to_try("replay")) == {*SCORES, "map-knn", "deep-knn"}


def test_scale_multiplies_the_logits():
    cosines, target = torch.tensor([[0.6, 0.1]]), torch.tensor([0])
    by_hand = math.log(1 + math.exp(10 * (0.1 - 0.6)))
    assert cosine_cross_entropy(cosines, target, 10.0).item() == pytest.approx(by_hand, rel=1e-5)


def test_batch_normalisation_uses_the_batch_in_training_and_what_it_saw_afterwards():
    generator = torch.Generator().manual_seed(0)
    net = SHELSNetwork(NetworkConfig((1, 8, 8), ((4,),), (5,), norm=True), 2, generator)
    x = 3 + torch.rand(64, 1, 8, 8, generator=generator)
    plain = net.convolutions[0](x)
    mean, variance = plain.mean(dim=(0, 2, 3)), plain.var(dim=(0, 2, 3))
    in_training = net.activations(x, generator)[0]
    by_hand = (plain - mean[:, None, None]) / (
        plain.var((0, 2, 3), False)[:, None, None] + 1e-5
    ).sqrt()
    torch.testing.assert_close(in_training, by_hand.relu(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(net.norms[0].mean, 0.1 * mean)
    torch.testing.assert_close(net.norms[0].variance, 0.9 + 0.1 * variance)
    before = net.norms[0].mean.clone()
    net.activations(x)
    torch.testing.assert_close(net.norms[0].mean, before)  # scoring changes nothing


def test_the_cycle_rises_to_the_learning_rate_and_falls_to_nearly_nothing():
    from limen.shels.training import _one_cycle

    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    cycle, rates = _one_cycle(optimiser, 100), []
    for _ in range(100):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        cycle.step()
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[20] == pytest.approx(0.5)
    assert rates[60] == pytest.approx(0.25)
    assert rates[-1] < 0.001
